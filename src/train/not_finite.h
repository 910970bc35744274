// Defines stop_not_finite, which stops the training after a step whose loss or gradient norm is not finite.
#pragma once

#include "programs/devices.h"
#include "step/run_step.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError. The message names the rows of `batch` whose loss is not finite, in the form of the recipe's
// skip_rows. If there is no such row (see rows_not_finite), the message names all rows of the batch. `state` is the
// state before the step.
[[noreturn]] void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome);

}  // namespace fettle
