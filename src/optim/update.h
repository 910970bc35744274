// Defines what update rules share: a weight's learning rate and its decoupled decay, as graph functions.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// The step's learning rate times the weight's factor, f32 scalar.
Tensor rate_of(const OptimWeight& weight, const UpdateInputs& in);
// The weight less rate x weight_decay of itself.
Tensor decayed(const OptimWeight& weight, const UpdateInputs& in);

}  // namespace fettle
