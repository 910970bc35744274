#include "run/run_length.h"

#include <algorithm>
#include <cmath>

namespace fettle {
namespace {

int64_t share_of(double share, int64_t total) {
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
}

// Converts a recipe's value to steps. A value below 1 is a share of all steps.
int64_t steps_of(double value, int64_t total) {
  return value >= 1 ? static_cast<int64_t>(value) : share_of(value, total);
}

int64_t interval(const Interval& wanted, const RunLength& run) {
  if (wanted.every == Interval::Every::kNever) return 0;
  if (wanted.every == Interval::Every::kEnd) return run.total_steps;
  if (wanted.every == Interval::Every::kEpoch) return run.steps_per_epoch;
  return std::max<int64_t>(1, steps_of(wanted.steps, run.total_steps));
}

}  // namespace

RunLength run_length(const LengthSpec& spec, int64_t steps_per_epoch) {
  RunLength run;
  run.steps_per_epoch = std::max<int64_t>(1, steps_per_epoch);
  run.total_steps =
      spec.max_steps > 0
          ? spec.max_steps
          : std::max<int64_t>(1, std::llround(std::ceil(spec.epochs * static_cast<double>(run.steps_per_epoch))));
  run.schedule = spec.schedule;
  run.schedule.total_steps = run.total_steps;
  run.schedule.warmup_steps = spec.warmup_steps > 0 ? steps_of(spec.warmup_steps, run.total_steps)
                                                    : share_of(spec.warmup_ratio, run.total_steps);
  if (spec.max_warmup_steps > 0 && spec.warmup_steps < 1)
    run.schedule.warmup_steps = std::min(run.schedule.warmup_steps, spec.max_warmup_steps);
  const int64_t after = run.total_steps - run.schedule.warmup_steps;
  run.schedule.stable_steps =
      spec.stable_steps.value_or(spec.decay_steps ? after - *spec.decay_steps : std::max<int64_t>(0, after) / 3);
  run.schedule.decay_steps = spec.decay_steps.value_or(std::max<int64_t>(0, after - run.schedule.stable_steps));
  run.logging_steps = std::max<int64_t>(1, steps_of(spec.logging_steps, run.total_steps));
  run.save_every = interval(spec.save, run);
  run.eval_every = interval(spec.evaluate, run);
  return run;
}

}  // namespace fettle
