// Defines the loss scale that keeps float16 gradients from vanishing, steered as torch.amp.GradScaler does.
#pragma once

#include "graph/tensor.h"

namespace fettle {

// State: f32 [2], the scale and the good steps since it last changed. A run starts with {kFirstLossScale, 0}.
constexpr double kFirstLossScale = 65536;
// Gradients that overflow at this scale have no place in float16.
constexpr double kSmallestLossScale = 1.0 / 1024;

Tensor loss_scale_of(const Tensor& state);  // f32 scalar
// After a step: 2000 good ones in a row double the scale, an overflow of the gradients halves it.
Tensor next_loss_scale(const Tensor& state, const Tensor& grads_finite);

}  // namespace fettle
