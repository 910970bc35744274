// Defines AdamW and clipping as graph functions. Source: Loshchilov & Hutter 2017, with PyTorch's order of operations.
#pragma once

#include <vector>

#include "graph/tensor.h"

namespace fettle {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// Scalars of one step, f32, computed on the host in double (1 - beta^step loses its digits in f32).
struct AdamWStep {
  Tensor learning_rate;
  Tensor correction1;       // 1 - beta1^step
  Tensor correction2_sqrt;  // sqrt(1 - beta2^step)
};

struct AdamWState {
  Tensor weight, m, v;  // m and v are f32
};

// One update; all arithmetic in f32. `weight_decay` is decoupled and multiplied by the learning rate.
AdamWState adamw_update(const AdamWState& state, const Tensor& grad, const AdamWStep& step, double weight_decay,
                        const AdamWOptions& options);

// sqrt of the sum of all squares, f32 scalar.
Tensor global_norm(const std::vector<Tensor>& grads);
// Factor that brings `norm` down to max_norm (1 when it is below): PyTorch's clip_grad_norm_.
Tensor clip_factor(const Tensor& norm, double max_norm);

}  // namespace fettle
