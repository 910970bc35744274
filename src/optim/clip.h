// Defines gradient clipping by the global norm, as functions that build graphs.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

// Returns the square root of the sum of the squares of all elements, an f32 scalar.
Tensor global_norm(const std::vector<Tensor>& grads);
// Returns the factor that reduces `norm` to max_norm, or 1 when `norm` is smaller, as PyTorch's clip_grad_norm_ does.
Tensor clip_factor(const Tensor& norm, double max_norm);

}  // namespace fettle
