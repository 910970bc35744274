// Defines functions that update rules share: they compute a weight's learning rate and its decoupled decay.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// Returns the step's learning rate times the weight's factor, an f32 scalar.
Tensor rate_of(const OptimWeight& weight, const UpdateInputs& in);
// Returns weight * (1 - rate * weight_decay).
Tensor decayed(const OptimWeight& weight, const UpdateInputs& in);

}  // namespace fettle
