// Defines stop_not_finite, which stops the training after a step whose loss or gradient norm is not finite.
#pragma once

#include <functional>

#include "programs/devices.h"
#include "step/run_step.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError. The message names the rows of `batch` whose loss is not finite, in the form of the recipe's
// skip_rows. If there is no such row (see rows_not_finite), the message names all rows of the batch. `state` is the
// state before the step. If the loss of some rows is finite and that of others is not, the data is the cause; then
// calls `save`, which saves this state, before it throws.
[[noreturn]] void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome, const std::function<void()>& save);

}  // namespace fettle
