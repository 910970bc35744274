#include "report/best_evaluation.h"

#include <cmath>
#include <vector>

namespace fettle {

BestEvaluation best_evaluation(std::span<const LogRecord> history, const BestSpec& spec) {
  BestEvaluation best;
  bool first = true;
  for (const LogRecord& record : history) {
    if (!record.is_evaluation()) continue;
    const auto found = record.values.find(spec.metric);
    const double value = found == record.values.end() ? NAN : found->second;
    const double gain = !best.value ? INFINITY : spec.greater_is_better ? value - *best.value : *best.value - value;
    const bool better = std::isfinite(value) && gain > 0;
    best.not_better = first || (better && gain > spec.threshold) ? 0 : best.not_better + 1;
    if (better) best.step = record.step, best.value = value;
    first = false;
  }
  return best;
}

void choose_best_checkpoint(RunRecord& record, const BestSpec& best) {
  const std::span<const LogRecord> log = record.comparable_log();
  std::vector<LogRecord> saved(log.begin(), log.end());
  std::erase_if(saved, [&](const LogRecord& entry) { return !record.checkpoints.contains(entry.step); });
  const BestEvaluation found = best_evaluation(saved, best);
  record.trainer.best_model_checkpoint = found.value ? record.checkpoints.at(found.step) : "";
}

}  // namespace fettle
