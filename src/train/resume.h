// Defines ResumePoint: the checkpoint that a run goes on from.
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

// What the recipe's resume_from_checkpoint asks for; nothing when it asks for nothing or, saying so, when there is no
// checkpoint yet. Reads manifests, and samples of the base. Throws UserError when the checkpoint is damaged or of
// another run; the message names another complete one that this run can go on from, checked to its last byte, when
// there is one.
std::optional<ResumePoint> find_resume_point(const Run& run, const ModelRepository& repository);

// The run's state from there, the frozen weights from the repository. Throws as above.
TrainState resume_state(ResumePoint& point, Devices& devices, const Run& run, const ModelRepository& repository);

}  // namespace fettle
