// Defines RunLength: how many steps a run has, and after which steps it logs, evaluates and saves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "optim/schedule.h"

namespace fettle {

// The interval of a repeated action: evaluating or saving.
struct Interval {
  enum class Every { kNever, kSteps, kEpoch, kEnd };
  Every every = Every::kNever;
  double steps = 0;  // for kSteps: number of steps; below 1: a share of all steps
};

// The recipe's keys about the length of the run and the schedule.
struct LengthSpec {
  double epochs = 3;
  int64_t max_steps = -1;        // above 0: replaces `epochs`
  double warmup_ratio = 0;       // share of all steps
  double warmup_steps = 0;       // above 0: replaces warmup_ratio; below 1: a share of all steps
  int64_t max_warmup_steps = 0;  // limits a warmup that is given as a share; 0: no limit
  Schedule schedule;             // run_length() sets its numbers of steps
  // Steps of warmup_stable_decay. If one is empty, it gets the rest of the steps after the warmup. If both are empty, a
  // third of these steps is stable, as in LLaMA-Factory.
  std::optional<int64_t> stable_steps, decay_steps;
  double logging_steps = 10;  // below 1: a share of all steps
  Interval save, evaluate;
};

struct RunLength {
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 1;
  Schedule schedule;
  int64_t logging_steps = 10;
  int64_t save_every = 0;  // 0: no checkpoints
  int64_t eval_every = 0;  // 0: never

  double epoch(int64_t step) const { return static_cast<double>(step) / static_cast<double>(steps_per_epoch); }
  bool logs_after(int64_t step) const { return step % logging_steps == 0 || step == total_steps; }
  bool saves_after(int64_t step) const { return save_every > 0 && (step % save_every == 0 || step == total_steps); }
  bool evaluates_after(int64_t step) const { return eval_every > 0 && (step % eval_every == 0 || step == total_steps); }
};

// Returns the length in steps. An epoch has `steps_per_epoch` steps.
RunLength run_length(const LengthSpec& spec, int64_t steps_per_epoch);

}  // namespace fettle
