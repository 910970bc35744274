// Defines best_evaluation, which finds the best evaluation of a run so far. It also counts the evaluations since the
// last clear improvement. The result depends only on the log, so a resumed run gets the same result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "report/run_record.h"
#include "run/run.h"

namespace fettle {

struct BestEvaluation {
  int64_t step = 0;
  double value = 0;
  int64_t not_better = 0;  // evaluations since the last improvement by more than BestSpec::threshold
};

// Returns nullopt when no evaluation has a finite value of the metric. A value that is not finite is never the best.
std::optional<BestEvaluation> best_evaluation(const std::vector<LogRecord>& history, const BestSpec& spec);

// Sets trainer.best_model_checkpoint to the checkpoint of the best evaluation that has one in `record.checkpoints`;
// empty when there is none.
void choose_best_checkpoint(RunRecord& record, const BestSpec& best);

}  // namespace fettle
