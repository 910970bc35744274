#include "optim/clip.h"

#include "graph/ops.h"

namespace fettle {

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
