#include "optim/loss_scale.h"

#include "graph/ops.h"

namespace fettle {
namespace {

constexpr double kGrowth = 2, kBackOff = 0.5, kGrowthInterval = 2000;

}  // namespace

Tensor loss_scale_of(const Tensor& state) {
  return reshape(slice(state, 0, 0, 1), {});
}

Tensor next_loss_scale(const Tensor& state, const Tensor& grads_finite) {
  const Tensor scale = slice(state, 0, 0, 1), good = slice(state, 0, 1, 2) + 1.0;
  const Tensor grows = compare(good, Direction::kGE, constant(kGrowthInterval, DType::kF32));
  const Tensor zero = constant(0, DType::kF32);
  const Tensor after_good = concatenate({select(grows, scale * kGrowth, scale), select(grows, zero, good)}, 0);
  const Tensor after_overflow = concatenate({scale * kBackOff, zeros_like(good)}, 0);
  return select(grads_finite, after_good, after_overflow);
}

}  // namespace fettle
