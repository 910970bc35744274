#include "optim/adamw.h"

#include <cmath>

#include "graph/ops.h"
#include "optim/update.h"

namespace fettle {

std::vector<OptimState> adamw_state(const OptimWeight& weight, const OptimOptions&) {
  const Shape shape = weight.shape.with_dtype(DType::kF32);
  return {{"m", shape, weight.axes}, {"v", shape, weight.axes}};
}

std::map<std::string, double> adamw_scalars(const OptimOptions& options, int64_t step, double rate) {
  const auto t = static_cast<double>(step);
  return {{"learning_rate", rate},
          {"correction1", 1 - std::pow(options.beta1, t)},
          {"correction2_sqrt", std::sqrt(1 - std::pow(options.beta2, t))}};
}

Updated adamw_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const Tensor rate = rate_of(weight, in);
  const Tensor m = in.state[0] * options.beta1 + in.grad * (1 - options.beta1);
  const Tensor v = in.state[1] * options.beta2 + in.grad * in.grad * (1 - options.beta2);
  const Tensor denominator = sqrt(v) / in.scalars.at("correction2_sqrt") + options.epsilon;
  return {decayed(weight, in) - rate / in.scalars.at("correction1") * m / denominator, {m, v}};
}

UpdateRule adamw_rule() {
  return {"adamw_torch", {}, adamw_state, adamw_scalars, adamw_update};
}

}  // namespace fettle
