#include "optim/adamw.h"

#include "graph/ops.h"

namespace fettle {

AdamWState adamw_update(const AdamWState& state, const Tensor& grad, const AdamWStep& step, double weight_decay,
                        const AdamWOptions& options) {
  const Tensor g = convert(grad, DType::kF32);
  Tensor w = convert(state.weight, DType::kF32);
  if (weight_decay != 0) w = w * (1.0 - step.learning_rate * weight_decay);
  const Tensor m = state.m * options.beta1 + g * (1 - options.beta1);
  const Tensor v = state.v * options.beta2 + g * g * (1 - options.beta2);
  const Tensor denominator = sqrt(v) / step.correction2_sqrt + options.epsilon;
  w = w - step.learning_rate / step.correction1 * m / denominator;
  return {convert(w, state.weight.dtype()), m, v};
}

Tensor global_norm(const std::vector<Tensor>& grads) {
  Tensor sum = constant(0, DType::kF32);
  for (const Tensor& grad : grads) {
    const Tensor g = convert(grad, DType::kF32);
    Dims all;
    for (int64_t d = 0; d < g.rank(); ++d) all.push_back(d);
    sum = sum + reduce_sum(g * g, all);
  }
  return sqrt(sum);
}

Tensor clip_factor(const Tensor& norm, double max_norm) {
  return minimum(max_norm / (norm + 1e-6), constant(1, DType::kF32));
}

}  // namespace fettle
