// Defines stop_not_finite, which reports a step whose loss or gradient is not finite.
#pragma once

#include "programs/devices.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError that names the rows of `batch` whose loss is not finite, in the form of the recipe's skip_rows; to
// find them, each row runs alone. `state` is the state before the step.
[[noreturn]] void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome);

}  // namespace fettle
