#include "report/run_length.h"

#include <algorithm>
#include <cmath>

namespace fettle {
namespace {

int64_t share_of(double share, int64_t total) {
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
}

// Counts below 1 are shares of all steps.
int64_t steps_of(double value, int64_t total) {
  return value >= 1 ? static_cast<int64_t>(value) : share_of(value, total);
}

int64_t interval(const std::string& strategy, double steps, const RunLength& run) {
  if (strategy == "no") return 0;
  if (strategy == "epoch") return run.steps_per_epoch;
  return std::max<int64_t>(1, steps_of(steps, run.total_steps));
}

}  // namespace

RunLength run_length(const Recipe& recipe, int64_t steps_per_epoch) {
  RunLength run;
  run.steps_per_epoch = std::max<int64_t>(1, steps_per_epoch);
  run.total_steps =
      recipe.max_steps > 0
          ? recipe.max_steps
          : std::max<int64_t>(
                1, std::llround(std::ceil(recipe.num_train_epochs * static_cast<double>(run.steps_per_epoch))));
  const int64_t warmup = recipe.warmup_steps > 0 ? steps_of(recipe.warmup_steps, run.total_steps)
                                                 : share_of(recipe.warmup_ratio, run.total_steps);
  run.schedule = {.type = recipe.lr_scheduler_type,
                  .warmup_steps = warmup,
                  .total_steps = run.total_steps,
                  .min_rate = recipe.min_lr_rate.value_or(0),
                  .power = recipe.lr_power,
                  .cycles = static_cast<double>(recipe.lr_num_cycles),
                  .decay_steps = recipe.lr_num_decay_steps.value_or(0)};
  run.logging_steps = std::max<int64_t>(1, recipe.logging_steps);
  run.save_every = interval(recipe.save_strategy, recipe.save_steps, run);
  const double eval_steps = recipe.eval_steps > 0 ? recipe.eval_steps : static_cast<double>(run.logging_steps);
  run.eval_every = interval(recipe.eval_strategy, eval_steps, run);
  return run;
}

}  // namespace fettle
