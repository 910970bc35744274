// Defines gradient clipping by the global norm, as graph functions.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Returns the square root of the sum of all squares, an f32 scalar.
Tensor global_norm(const std::vector<Tensor>& grads);
// Returns the factor that reduces `norm` to max_norm (1 when it is below): PyTorch's clip_grad_norm_.
Tensor clip_factor(const Tensor& norm, double max_norm);

}  // namespace fettle
