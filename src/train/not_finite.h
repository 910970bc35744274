// Defines stop_not_finite, which stops the training after a step whose loss or gradient norm is not finite.
#pragma once

#include "programs/devices.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError that names the rows of `batch` whose loss is not finite, in the form of the recipe's skip_rows. To
// find these rows, evaluates the whole batch, then each suspicious row alone. If no row has a loss that is not finite
// when it runs alone, names all rows. `state` is the state before the step.
[[noreturn]] void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome);

}  // namespace fettle
