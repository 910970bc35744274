// Defines stop_not_finite: what is said of a step whose loss or gradient is no number.
#pragma once

#include "programs/devices.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError naming the rows of `batch` whose loss is not finite, each run alone, as the recipe's skip_rows takes
// them. `state` is as before the step.
[[noreturn]] void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome);

}  // namespace fettle
