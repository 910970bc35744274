#include "adapters/quantised.h"

#include <algorithm>

#include "adapters/block_codes.h"
#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

// Selects one of 16 values by the four high bits of a byte. It is a tree of selects, which compilers fuse with the op
// that reads the result.
Tensor value_of(const Tensor& nibble_u8, const std::vector<float>& values) {
  const Tensor half = constant(128, DType::kU8);
  std::vector<Tensor> choices;
  for (float value : values) choices.push_back(constant(value, DType::kF32));
  for (int64_t bit = 3; bit >= 0; --bit) {  // from the lowest of the four
    const Tensor set = compare(bit == 0 ? nibble_u8 : shift_left(nibble_u8, bit), "GE", half);
    std::vector<Tensor> next;
    for (size_t i = 0; i < choices.size(); i += 2) next.push_back(select(set, choices[i + 1], choices[i]));
    choices = std::move(next);
  }
  return choices[0];
}

// Returns absmax with the shape of its codes: the map's value times the absmax of its block of 256, plus the mean.
Tensor nested_absmax(const Tensor& codes, const Tensor& absmax, const Tensor& offset) {
  const std::vector<float>& map = nested_values();
  const Tensor table = literal({map.begin(), map.end()}, {DType::kF32, {static_cast<int64_t>(map.size()), 1}});
  const Tensor values = reshape(take(table, convert(codes, DType::kI32)), codes.dims());
  const int64_t blocks = absmax.dim(0), count = product(codes.dims());
  const Tensor spread = reshape(broadcast_to(expand(absmax, 1), {blocks, Quantisation::kNestedBlock}),
                                {blocks * Quantisation::kNestedBlock});
  return values * reshape(slice(spread, 0, 0, count), codes.dims()) + reshape(offset, {});
}

}  // namespace

QuantisedWeight quantised_weight(const Param& base, const Quantisation& format, const ShardingRules& rules) {
  internal_check(base.dims.size() >= 2, "{}: only matrices can be quantised, its shape is {}", base.hf_name,
                 to_string(base.dims));
  QuantisedWeight out{base, format, {}};
  auto add = [&](const std::string& part, Dims dims, LogicalAxes axes, DType dtype) {
    out.parts.push_back({.hf_name = base.hf_name + part,
                         .dims = std::move(dims),
                         .axes = std::move(axes),
                         .role = Role::kQuantisedParts,
                         .layers = base.layers,
                         .dtype = dtype});
  };
  if (!format.four_bits()) {
    add("", base.dims, base.axes, DType::kI8);
    add(".absmax", {base.dims.begin(), base.dims.end() - 1}, {base.axes.begin(), base.axes.end() - 1}, DType::kF32);
    return out;
  }
  const int64_t blocks = blocks_of(product(base.dims), Quantisation::kBlock);
  Dims codes{blocks_of(product(base.dims), 2)}, absmax{blocks};
  LogicalAxes axes{""};
  if (out.by_rows()) {
    codes = absmax = base.dims;
    codes.back() /= 2;
    absmax.back() /= Quantisation::kBlock;
    axes = base.axes;
    if (rules.fitting(axes, absmax).dims.back() != rules.fitting(axes, base.dims).dims.back()) axes.back() = "";
  }
  add("", codes, axes, DType::kU8);
  add(".absmax", absmax, axes, format.nested ? DType::kU8 : DType::kF32);
  if (!format.nested) return out;
  add(".nested_absmax", {blocks_of(blocks, Quantisation::kNestedBlock)}, {""}, DType::kF32);
  add(".nested_offset", {1}, {""}, DType::kF32);
  return out;
}

Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts) {
  PathScope scope("dequantise");
  const Tensor& codes = parts[0];
  if (!weight.format.four_bits()) return convert(codes, DType::kF32) * expand(parts[1] / 127.0, codes.rank() - 1);
  const Tensor absmax = weight.format.nested ? nested_absmax(parts[1], parts[2], parts[3]) : parts[1];
  Dims pairs = absmax.dims();
  pairs.insert(pairs.end(), {Quantisation::kBlock / 2, 1});
  const int64_t missing =
      product(absmax.dims()) * Quantisation::kBlock / 2 - product(codes.dims());  // of the last block
  const Tensor bytes = reshape(missing == 0 ? codes : pad(codes, {0}, {missing}), pairs);
  pairs.back() = 2;
  const Tensor whole = broadcast_to(bytes, pairs);
  const Tensor second = compare(iota({DType::kU8, pairs}, absmax.rank() + 1), "EQ", constant(1, DType::kU8));
  const Tensor value = value_of(select(second, shift_left(whole, 4), whole), values_of(weight.format.type));
  const Tensor scaled = value * expand(expand(absmax, absmax.rank()), absmax.rank() + 1);
  if (weight.by_rows()) return reshape(scaled, weight.base.dims);
  return reshape(slice(reshape(scaled, {-1}), 0, 0, product(weight.base.dims)), weight.base.dims);
}

std::function<void(Layer&)> unpack_quantised(const std::vector<QuantisedWeight>& weights, const std::string& prefix,
                                             DType held, const ShardingRules& rules) {
  if (weights.empty()) return {};
  const std::vector<std::string> batch = rules.partition({"batch"}, {rules.mesh().size()}, "the batch").dims[0];
  auto gathered = [batch, &rules](const Tensor& x, const Param& param) {
    if (rules.mesh().size() == 1) return x;
    Partition partition = rules.partition(param.axes, param.dims, param.hf_name);
    for (std::vector<std::string>& axes : partition.dims)
      std::erase_if(axes, [&](const std::string& axis) { return std::ranges::find(batch, axis) != batch.end(); });
    return sharding_constraint(x, partition);
  };
  return [weights, prefix, held, gathered](Layer& layer) {
    for (const QuantisedWeight& weight : weights) {
      if (!weight.base.layers.contains(layer.lowest)) continue;
      std::vector<Tensor> parts;
      for (const Param& part : weight.parts) parts.push_back(gathered(layer[part.hf_name.substr(prefix.size())], part));
      layer.weights[weight.base.hf_name.substr(prefix.size())] = convert(dequantise(weight, parts), held);
    }
  };
}

}  // namespace fettle
