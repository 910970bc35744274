#include "models/blocks/experts/moe_routing.h"

#include <string>
#include <vector>

#include "graph/ops.h"
#include "models/blocks/experts/balance.h"
#include "models/blocks/experts/numbers.h"

namespace fettle {
namespace {

// The j-th largest value of each vector along the last dim. j is the same for all vectors.
struct Largest {
  Tensor place;  // the value's index, f32 [..]
  Tensor there;  // f32 [.., values]: 1 at that index, 0 elsewhere
};

constexpr double kNever = -1e30;

// Returns the `count` largest values, the largest first; among equal values, the one with the lowest index comes first.
// Values of kNever are chosen last.
std::vector<Largest> largest_of(Tensor values, int64_t count) {
  values = stop_gradient(values);
  const Tensor place = counting(values.dims(), values.rank() - 1), end = number(values.dim(-1));
  std::vector<Largest> out;
  for (int64_t j = 0; j < count; ++j) {
    const Tensor best = compare(values, Direction::kEQ, expand(reduce_max(values, {-1}), -1));
    const Tensor first = end - reduce_max(where(best) * (end - place), {-1});
    const Tensor there = compare(place, Direction::kEQ, expand(first, -1));
    out.push_back({first, where(there)});
    values = select(there, number(0) + kNever, values);
  }
  return out;
}

// Sets the scores of experts outside of the best groups to kNever.
Tensor within_best_groups(const Routing& routing, const Tensor& scores) {
  if (routing.groups == 1) return scores;
  Dims apart = scores.dims();
  apart.back() = routing.groups;
  apart.push_back(scores.dim(-1) / routing.groups);
  const Tensor by_group = reshape(scores, apart);
  Tensor of_group;
  for (const Largest& each : largest_of(by_group, routing.best_two ? 2 : 1)) {
    const Tensor value = reduce_sum(by_group * each.there, {-1});
    of_group = of_group ? of_group + value : value;
  }
  Tensor chosen;
  for (const Largest& each : largest_of(of_group, routing.top_groups))
    chosen = chosen ? chosen + each.there : each.there;
  const Tensor open = broadcast_to(expand(compare(chosen, Direction::kGT, number(0)), -1), apart);
  return reshape(select(open, by_group, full(kNever, by_group.shape())), scores.dims());
}

Tensor softmax(const Tensor& logits) {
  const Tensor powers = exp(logits - expand(stop_gradient(reduce_max(logits, {-1})), -1));
  return powers / expand(reduce_sum(powers, {-1}), -1);
}

// Returns the router's logits as f32.
Tensor router_logits(const Forward& f, const Layer& layer, const Tensor& x_nD) {
  const std::string& router = f.config.experts.router;
  PathScope scope(router);
  const Tensor in = f.config.routing.in_f32 ? convert(x_nD, DType::kF32) : x_nD;
  auto times = [&](const Tensor& x, const std::string& name) {
    return dot_general(x, convert(layer[name], x.dtype()), {.lhs_contracting = {x.rank() - 1}, .rhs_contracting = {1}});
  };
  Tensor y = times(in, router + ".weight");
  if (layer.has(router + ".bias")) y = y + convert(layer[router + ".bias"], y.dtype());
  if (f.expert_lora && !f.expert_lora->router.empty()) {
    const std::string& lora = f.expert_lora->router;
    y = y + times(times(in, lora + ".lora_A.weight"), lora + ".lora_B.weight") * f.expert_lora->scale;
  }
  return convert(y, DType::kF32);
}

}  // namespace

Routes route(Forward& f, const Layer& layer, const Tensor& x_nD, const Tensor& mask_n1) {
  const ModelConfig& c = f.config;
  const Tensor logits = router_logits(f, layer, x_nD);
  const Tensor scores = c.routing.sigmoid ? logistic(logits) : softmax(logits);
  // Llama 4 (on_inputs) compares logits, because the sigmoids of two large logits may round to the same number.
  Tensor choice = c.routing.on_inputs ? logits : scores;
  if (!c.routing.correction.empty())
    choice = choice + reshape(convert(layer[c.routing.correction], DType::kF32), {c.num_experts});
  std::vector<Tensor> experts, weights, factors;
  Tensor taken = full(0, scores.shape());
  for (const Largest& each : largest_of(within_best_groups(c.routing, choice), c.experts_per_token)) {
    experts.push_back(expand(each.place, -1));
    weights.push_back(expand(reduce_sum(scores * each.there, {-1}), -1));
    if (!c.routing.factors.empty())
      factors.push_back(expand(reduce_sum(convert(layer[c.routing.factors], DType::kF32) * each.there, {-1}), -1));
    taken = taken + each.there;
  }
  add_routes(f, layer, {taken, scores, mask_n1});
  Tensor of_all = concatenate(weights, -1);
  if (c.routing.normalised) {
    const Tensor total = expand(reduce_sum(of_all, {-1}), -1);
    of_all = of_all / (c.routing.sigmoid ? total + c.routing.epsilon : total);
  }
  if (c.routing.scale != 1) of_all = of_all * c.routing.scale;
  if (!factors.empty()) of_all = of_all * concatenate(factors, -1);
  return {concatenate(experts, -1), of_all};
}

}  // namespace fettle
