// Defines the loss scale, which keeps float16 gradients from becoming zero. It follows the rule of
// torch.amp.GradScaler.
#pragma once

#include "graph/tensor.h"

namespace fettle {

// The state is f32 [2]: the scale, and the number of good steps (all gradients are finite) since the scale changed. A
// run starts with {kFirstLossScale, 0}.
constexpr double kFirstLossScale = 65536;
// If an overflow would reduce the scale below this value, the step fails, because float16 cannot represent the
// gradients.
constexpr double kSmallestLossScale = 1.0 / 1024;

Tensor loss_scale_of(const Tensor& state);  // f32 scalar
// Returns the state after a step. The scale doubles after 2000 good steps in a row and halves when gradients overflow.
Tensor next_loss_scale(const Tensor& state, const Tensor& grads_finite);

}  // namespace fettle
