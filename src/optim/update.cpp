#include "optim/update.h"

#include "graph/ops.h"

namespace fettle {

Tensor rate_of(const OptimWeight& weight, const UpdateInputs& in) {
  const Tensor rate = in.scalars.at("learning_rate");
  return weight.rate == 1 ? rate : rate * weight.rate;
}

Tensor decayed(const OptimWeight& weight, const UpdateInputs& in) {
  if (weight.weight_decay == 0) return in.weight;
  return in.weight * (1.0 - rate_of(weight, in) * weight.weight_decay);
}

}  // namespace fettle
