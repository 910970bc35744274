// Defines functions that update rules share, and the whole update of a parameter, from its raw gradient to its new
// values.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// Returns the step's learning rate times the weight's factor, an f32 scalar.
Tensor rate_of(const OptimWeight& weight, const UpdateInputs& in);
// Returns weight * (1 - rate * weight_decay).
Tensor decayed(const OptimWeight& weight, const UpdateInputs& in);

// Returns the raw gradient divided by `divisor`, times `factor` unless this is null, in f32.
Tensor scaled_gradient(const Tensor& gradient, const Tensor& divisor, const Tensor& factor);

struct WholeUpdate {
  Tensor weight, grad;        // in the weight's shape; the gradient is raw
  std::vector<Tensor> state;  // in the order of UpdateRule::state()
  Tensor divisor, factor;     // see scaled_gradient
  Tensor finite;              // pred scalar; if false, weight and state do not change
  std::map<std::string, Tensor> scalars;
  Partition partition;              // of the weight and the gradient
  std::vector<Partition> of_state;  // one for each of `state`
};

// Returns the new weight, in the dtype of the old one, and the new state. This is the composite "optimizer_update": its
// inputs are the members of `in` in their order, without `factor` if it is null.
Updated updated(const Optimizer& optimizer, const OptimWeight& weight, const WholeUpdate& in);

}  // namespace fettle
