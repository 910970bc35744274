// Defines RunLength: how many steps a run has, and what happens after which.
#pragma once

#include <cstdint>

#include "config/recipe.h"
#include "optim/schedule.h"

namespace fettle {

struct RunLength {
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;
  Schedule schedule;
  int64_t logging_steps = 10;
  int64_t save_every = 0;  // 0: only at the end
  int64_t eval_every = 0;  // 0: never

  double epoch(int64_t step) const { return static_cast<double>(step) / static_cast<double>(steps_per_epoch); }
  bool logs_after(int64_t step) const { return step % logging_steps == 0 || step == total_steps; }
  bool saves_after(int64_t step) const { return save_every > 0 && (step % save_every == 0 || step == total_steps); }
  bool evaluates_after(int64_t step) const { return eval_every > 0 && (step % eval_every == 0 || step == total_steps); }
};

// Steps from max_steps or num_train_epochs; warm-up, saving and evaluation as the recipe's counts, shares or
// strategies.
RunLength run_length(const Recipe& recipe, int64_t steps_per_epoch);

}  // namespace fettle
