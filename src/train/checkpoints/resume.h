// Defines ResumePoint: the checkpoint from which a run continues.
#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/saved/state.h"
#include "report/run_record.h"
#include "step/state/train_state.h"

namespace fettle {

struct ResumePoint {
  std::filesystem::path checkpoint;
  int64_t step = 0;
  std::optional<StateReader> state;  // none after resume_state()
  RunRecord record;
};

// Returns the checkpoint that resume_from_checkpoint names. Returns nullopt when the key is not set. Also returns
// nullopt, and prints a message, when there is no checkpoint yet. Reads the checkpoint's manifest and samples of the
// base's weights. Throws UserError when the checkpoint is damaged or belongs to another run. If this run can continue
// from another complete checkpoint, the error names that checkpoint; only its manifest and its files' sizes are
// checked.
std::optional<ResumePoint> find_resume_point(const Run& run, const ModelRepository& repository);

// Returns the trained state from the checkpoint, with the frozen weights from the repository. Closes the checkpoint's
// files, because the disk space of a deleted file is free only when no process has the file open. Throws UserError like
// find_resume_point when the checkpoint is damaged.
TrainState resume_state(ResumePoint& point, Devices& devices, const Run& run, const ModelRepository& repository);

}  // namespace fettle
