// Defines learning-rate schedules, which are functions of the step.
#pragma once

#include <cstdint>
#include <string>

namespace fettle {

struct Schedule {
  std::string type = "linear";  // Hugging Face's lr_scheduler_type
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double min_rate = 0;  // lowest share of learning_rate (cosine_with_min_lr, polynomial, warmup_stable_decay)
  double power = 1;     // power of polynomial
  double cycles = 1;    // cycles of cosine_with_restarts
  // For warmup_stable_decay: the steps after the warm-up in which the rate stays, and the steps after those in which it
  // falls. stable_steps may be below 0; the decay then begins within the warm-up.
  int64_t stable_steps = 0, decay_steps = 0;

  // Returns the factor on learning_rate in optimizer step `step` (0-based). Source: transformers/optimization.py.
  double multiplier(int64_t step) const;
};

// Throws UserError, which lists the types, when `type` is unknown.
void check_schedule_type(const std::string& type);

}  // namespace fettle
