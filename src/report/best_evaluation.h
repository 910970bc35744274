// Defines best_evaluation, which finds the best evaluation of a run so far. It also counts the evaluations since the
// last clear improvement. The result depends only on the log, so a resumed run gets the same result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "report/run_record.h"
#include "run/run.h"

namespace fettle {

struct BestEvaluation {
  int64_t step = 0;             // 0: no evaluation has a finite value
  std::optional<double> value;  // of the metric
  // Evaluations since the last improvement by more than BestSpec::threshold; before the first one, those after the
  // first evaluation.
  int64_t not_better = 0;
};

// An evaluation whose value of the metric is missing or not finite is never the best.
BestEvaluation best_evaluation(std::span<const LogRecord> history, const BestSpec& spec);

// Sets trainer.best_model_checkpoint to the checkpoint of the best evaluation that has one in `record.checkpoints`;
// empty when there is none. Compares only evaluations of comparable_log().
void choose_best_checkpoint(RunRecord& record, const BestSpec& best);

}  // namespace fettle
