#include "optim/update.h"

#include "graph/composite.h"
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

Tensor scaled_gradient(const Tensor& gradient, const Tensor& divisor, const Tensor& factor) {
  const Tensor mean = convert(gradient, DType::kF32) / divisor;
  return factor ? mean * factor : mean;
}

Updated updated(const Optimizer& optimizer, const OptimWeight& weight, const WholeUpdate& in) {
  std::vector<Tensor> inputs{in.weight, in.grad};
  std::vector<Partition> partitions{in.partition, in.partition};
  inputs.insert(inputs.end(), in.state.begin(), in.state.end());
  partitions.insert(partitions.end(), in.of_state.begin(), in.of_state.end());
  inputs.push_back(in.divisor);
  if (in.factor) inputs.push_back(in.factor);
  inputs.push_back(in.finite);
  for (const auto& [name, scalar] : in.scalars) inputs.push_back(scalar);
  partitions.resize(inputs.size());
  auto body = [&](const std::vector<Tensor>& of) {
    const size_t states = in.state.size();
    size_t next = 2 + states;
    const Tensor divisor = of[next++], factor = in.factor ? of[next++] : Tensor{}, finite = of[next++];
    UpdateInputs rule{convert(of[0], DType::kF32),
                      scaled_gradient(of[1], divisor, factor),
                      {of.begin() + 2, of.begin() + 2 + static_cast<std::ptrdiff_t>(states)},
                      {}};
    for (const auto& [name, scalar] : in.scalars) rule.scalars[name] = of[next++];
    const Updated next_values = optimizer.update(weight, rule);
    std::vector<Tensor> out{select(finite, convert(next_values.weight, of[0].dtype()), of[0])};
    for (size_t s = 0; s < states; ++s) out.push_back(select(finite, next_values.state[s], of[2 + s]));
    return out;
  };
  const std::vector<Tensor> out = composite("optimizer_update",
                                            {{"rule", std::string(optimizer.rule->name)},
                                             {"beta1", optimizer.options.beta1},
                                             {"beta2", optimizer.options.beta2},
                                             {"epsilon", optimizer.options.epsilon},
                                             {"weight_decay", weight.weight_decay},
                                             {"rate", weight.rate},
                                             {"clipped", static_cast<bool>(in.factor)}},
                                            inputs, partitions, body);
  return {out[0], {out.begin() + 1, out.end()}};
}

}  // namespace fettle
