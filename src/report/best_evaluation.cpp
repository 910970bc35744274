#include "report/best_evaluation.h"

#include <cmath>

namespace fettle {

std::optional<BestEvaluation> best_evaluation(const std::vector<LogRecord>& history, const BestSpec& spec) {
  std::optional<BestEvaluation> best;
  int64_t not_better = 0;
  for (const LogRecord& record : history) {
    if (!record.is_evaluation()) continue;
    const auto found = record.values.find(spec.metric);
    const double value = found == record.values.end() ? NAN : found->second;
    const double gain = !best ? INFINITY : spec.greater_is_better ? value - best->value : best->value - value;
    const bool better = std::isfinite(value) && gain > 0;
    not_better = better && gain > spec.threshold ? 0 : not_better + 1;
    if (better) best = {record.step, value, 0};
    if (best) best->not_better = not_better;
  }
  return best;
}

void choose_best_checkpoint(RunRecord& record, const BestSpec& best) {
  std::vector<LogRecord> saved = record.trainer.log_history;
  std::erase_if(saved, [&](const LogRecord& entry) { return !record.checkpoints.contains(entry.step); });
  const std::optional<BestEvaluation> found = best_evaluation(saved, best);
  record.trainer.best_model_checkpoint = found ? record.checkpoints.at(found->step) : "";
}

}  // namespace fettle
