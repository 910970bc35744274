#include "adapters/quantised.h"

#include <algorithm>

#include "adapters/formats/four_bit_blocks.h"
#include "adapters/formats/weight_format.h"
#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

// Dequantises nested absmax values, of all experts at once. The weights themselves stay codes; the loop over blocks of
// tokens (models/blocks/experts/moe.h) dequantises an expert's weights when it reads them.
PackedExperts packed_experts(QuantisedWeight weight, std::vector<Tensor> parts, DType held) {
  if (weight.format.nested) parts = {parts[0], nested_absmax(parts[1], parts[2], parts[3])};
  weight.format.nested = false;
  return {std::move(parts), [weight, held](const std::vector<Tensor>& of_some) {
            QuantisedWeight some = weight;
            some.base.dims[0] = of_some[0].dim(0);
            return dequantise(some, of_some, held);
          }};
}

}  // namespace

Dims QuantisedWeight::rows() const {
  Dims out = base.dims;
  if (base.fused < 0 || base.fused + 2 != static_cast<int>(out.size())) return out;
  out[out.size() - 2] *= out.back();
  out.pop_back();
  return out;
}

bool is_quantised(const Param& param, const Quantisation& format, bool stored) {
  if (param.role == Role::kLinear) return param.stacked();
  return param.has_experts() && !stored && format.four_bits() && QuantisedWeight{param, format, {}}.by_rows();
}

std::optional<Quantisation> kept_format(const Model& model, const Param& param, Quantisation format) {
  if (!param.stacked() || (param.role != Role::kLinear && !param.has_experts())) return std::nullopt;
  if (param.role == Role::kLinear && model.family->fan_in_fan_out) return std::nullopt;
  if (param.role == Role::kExpertsFused) {
    // With any_order, gate and up of an expert may have their inputs in different orders. The fused weight has one
    // order for both.
    const ExpertNames& names = model.config.experts;
    if (format.any_order || names.in_turns || model.config.expert_bias) return std::nullopt;
    if (names.in_first && !format.in_groups()) return std::nullopt;
    format.inputs_first = names.in_first;
  }
  const int64_t inputs = format.inputs_first ? param.dims[1] : QuantisedWeight{param, format, {}}.rows().back();
  if (format.four_bits() && inputs % 2 != 0) return std::nullopt;
  return format;
}

QuantisedWeight quantised_weight(const Param& base, const Quantisation& format, const ShardingRules& rules) {
  internal_check(base.dims.size() >= 2, "{}: only matrices can be quantised, its shape is {}", base.hf_name,
                 to_string(base.dims));
  QuantisedWeight out{base, format, {}};
  out.parts = weight_format(format.type).parts(out, rules);
  return out;
}

Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype) {
  PathScope scope("dequantise");
  return weight_format(weight.format.type).dequantise(weight, parts, dtype);
}

namespace {

// Puts the last part of each quantised linear layer behind a barrier with `after`. This part is a small array, and the
// weight cannot be computed without it. So no weight can be computed before `after` is known.
void wait_for(Tensor& after, const std::vector<QuantisedWeight>& weights, const std::string& prefix, Layer& layer) {
  std::vector<Tensor> values{after};
  std::vector<std::string> names;
  for (const QuantisedWeight& weight : weights) {
    if (!weight.base.layers.contains(layer.lowest) || weight.base.has_experts()) continue;
    names.push_back(weight.parts.back().hf_name.substr(prefix.size()));
    values.push_back(layer[names.back()]);
  }
  if (names.empty()) return;
  values = optimization_barrier(values);
  after = values[0];
  for (size_t i = 0; i < names.size(); ++i) layer.weights[names[i]] = values[i + 1];
}

}  // namespace

std::function<void(Layer&, Tensor*)> unpack_quantised(const std::vector<QuantisedWeight>& weights,
                                                      const std::string& prefix, DType held,
                                                      const ShardingRules& rules) {
  if (weights.empty()) return {};
  const std::vector<std::string> batch = rules.partition({"batch"}, {rules.mesh().size()}, "the batch").dims[0];
  auto gathered = [batch, &rules](const Tensor& x, const Param& param) {
    if (rules.mesh().size() == 1) return x;
    Partition partition = rules.partition(param.axes, param.dims, param.hf_name);
    for (size_t d = 0; d < partition.dims.size(); ++d)
      if (param.axes[d] != "experts")
        std::erase_if(partition.dims[d],
                      [&](const std::string& axis) { return std::ranges::find(batch, axis) != batch.end(); });
    return sharding_constraint(x, partition);
  };
  return [weights, prefix, held, gathered](Layer& layer, Tensor* after) {
    if (after != nullptr) wait_for(*after, weights, prefix, layer);
    for (const QuantisedWeight& weight : weights) {
      if (!weight.base.layers.contains(layer.lowest)) continue;
      std::vector<Tensor> parts;
      for (const Param& part : weight.parts) parts.push_back(gathered(layer[part.hf_name.substr(prefix.size())], part));
      const std::string name = weight.base.hf_name.substr(prefix.size());
      if (weight.base.has_experts())
        layer.packed[name] = packed_experts(weight, std::move(parts), held);
      else
        layer.weights[name] = dequantise(weight, parts, held);
    }
  };
}

}  // namespace fettle
