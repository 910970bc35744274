#include "models/blocks/experts/balance.h"

#include "graph/ops.h"

namespace fettle {

Tensor no_routes(const ModelConfig& config) {
  return full(0, {DType::kF32, {2, config.num_experts}});
}

Tensor no_loads(const ModelConfig& config) {
  return full(0, {DType::kF32, {config.num_hidden_layers, config.num_experts}});
}

void add_routes(Forward& f, const Layer& layer, const RoutedTokens& routed) {
  if (!f.router && !f.loads) return;
  Dims tokens;
  for (int64_t d = 0; d + 1 < routed.taken_E.rank(); ++d) tokens.push_back(d);
  auto add_up = [&](const Tensor& x) { return expand(reduce_sum(x * routed.mask_1, tokens), 0); };
  const Tensor counts_1E = add_up(routed.taken_E);
  if (f.router) f.router = f.router + concatenate({counts_1E, add_up(routed.scores_E)}, 0);
  if (!f.loads) return;
  const Tensor here = compare(iota({DType::kI32, {f.loads.dim(0), 1}}, 0), Direction::kEQ, layer.index);
  f.loads = f.loads + convert(here, DType::kF32) * counts_1E;
}

Tensor balance_loss(const Forward& f) {
  const Tensor sent = slice(f.router, 0, 0, 1), likely = slice(f.router, 0, 1, 2);
  const Tensor all = reduce_sum(sent, {0, 1}) / static_cast<double>(f.config.experts_per_token);
  const Tensor tokens = maximum(all, constant(1, DType::kF32));
  return reduce_sum(sent / tokens * (likely / tokens), {0, 1}) * static_cast<double>(f.config.num_experts);
}

Tensor moved_corrections(const Tensor& corrections, const std::vector<int64_t>& layers, const Tensor& loads_LE,
                         double rate) {
  std::vector<Tensor> parts;  // each part has the loads of layers with successive numbers
  for (size_t begin = 0, end; begin < layers.size(); begin = end) {
    for (end = begin + 1; end < layers.size() && layers[end] == layers[end - 1] + 1;) ++end;
    parts.push_back(slice(loads_LE, 0, layers[begin], layers[end - 1] + 1));
  }
  const Tensor loads_lE = concatenate(parts, 0);
  // Compares products instead of means, because products up to 2^24 are exact. Above 2^24, the correction of an expert
  // whose load is very close to the mean may move in the wrong direction.
  const Tensor all_l1 = expand(reduce_sum(loads_lE, {1}), 1);
  const Tensor moves_lE = sign(all_l1 - loads_lE * static_cast<double>(loads_lE.dim(1))) * rate;
  return corrections + reshape(moves_lE, corrections.dims());
}

}  // namespace fettle
