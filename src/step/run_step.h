// Defines run_step, which runs the program of a training step and changes the state.
#pragma once

#include <map>
#include <string>

#include "data/batches/batches.h"
#include "programs/devices.h"
#include "run/run.h"
#include "step/state/train_state.h"

namespace fettle {

struct StepOutcome {
  double loss = 0;
  double grad_norm = 0;
  double loss_scale = 0;                  // float16: the loss scale of the next step
  std::map<std::string, double> metrics;  // for preferences: rewards/chosen, ... (stages/preferences.h)
  bool overflowed = false;  // float16 gradients overflowed: only the loss scale changed, and the step must run again
  bool finite() const;
};

// Runs one optimizer step in place. `step` is the program of build_train_step. Increments state.step when the outcome
// is finite.
StepOutcome run_step(const Devices& devices, const Run& run, const Executable& step, TrainState& state,
                     const Batch& batch, double learning_rate);

}  // namespace fettle
