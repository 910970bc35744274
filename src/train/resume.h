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
  StateReader state;
  RunRecord record;
};

// Returns the checkpoint that resume_from_checkpoint names; nullopt when the key is not set or, with a message, when
// there is no checkpoint yet. Reads manifests and samples of the base. Throws UserError when the checkpoint is damaged
// or belongs to another run. If this run can continue from another complete checkpoint, the message names it; all bytes
// of that checkpoint have been verified.
std::optional<ResumePoint> find_resume_point(const Run& run, const ModelRepository& repository);

// Returns the run's state from the checkpoint and the frozen weights from the repository. Throws like
// find_resume_point.
TrainState resume_state(ResumePoint& point, Devices& devices, const Run& run, const ModelRepository& repository);

}  // namespace fettle
