#include "adapters/quantised.h"

#include <algorithm>
#include <numeric>

#include "adapters/block_codes.h"
#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

// Selects one of 16 values by the four high bits of a byte. The result is a tree of select ops, which compilers fuse
// with the op that reads the result.
Tensor value_of(const Tensor& nibble_u8, const std::vector<float>& values) {
  const Tensor half = constant(128, DType::kU8);
  std::vector<Tensor> choices;
  for (float value : values) choices.push_back(constant(value, DType::kF32));
  for (int64_t bit = 3; bit >= 0; --bit) {  // starts at the lowest of the four bits
    const Tensor set = compare(bit == 0 ? nibble_u8 : shift_left(nibble_u8, bit), Direction::kGE, half);
    std::vector<Tensor> next;
    for (size_t i = 0; i < choices.size(); i += 2) next.push_back(select(set, choices[i + 1], choices[i]));
    choices = std::move(next);
  }
  return choices[0];
}

// Returns the absmax values in the shape of `codes`. Each value is map[code], times the absmax of the code's block of
// 256 codes, plus the mean.
Tensor nested_absmax(const Tensor& codes, const Tensor& absmax, const Tensor& offset) {
  const std::vector<float>& map = nested_values();
  const Tensor table = literal({map.begin(), map.end()}, {DType::kF32, {static_cast<int64_t>(map.size()), 1}});
  const Tensor values = reshape(take(table, convert(codes, DType::kI32)), codes.dims());
  // Each expert has its own blocks and mean.
  const int64_t experts = absmax.rank() == 2 ? absmax.dim(0) : 1, blocks = absmax.dim(-1);
  const Dims apart{experts, blocks, Quantisation::kNestedBlock};
  const Tensor spread = reshape(broadcast_to(reshape(absmax, {experts, blocks, 1}), apart),
                                {experts, blocks * Quantisation::kNestedBlock});
  const Tensor scale = reshape(slice(spread, 1, 0, product(codes.dims()) / experts), codes.dims());
  const Tensor mean = experts == 1 ? reshape(offset, {}) : broadcast_in_dim(offset, codes.dims(), {0});
  return values * scale + mean;
}

// Returns the dims or axes [E, in, out..] in the order [E, out.., in].
template <typename List>
List inputs_last(List list) {
  std::rotate(list.begin() + 1, list.begin() + 2, list.end());
  return list;
}

// Returns the weight [E, out.., in] as [E, in, out..].
Tensor inputs_second(const Tensor& weight) {
  Dims order{0, weight.rank() - 1};
  for (int64_t d = 1; d + 1 < weight.rank(); ++d) order.push_back(d);
  return transpose(weight, order);
}

enum class FirstCode { kLowBits, kHighBits };

// Takes the two 4-bit codes out of each byte of bytes_u8 [.., 1], in the order that the format stores them. Returns
// them as [.., 2], in the upper four bits of a byte.
Tensor both_codes(const Tensor& bytes_u8, FirstCode first) {
  Dims pairs = bytes_u8.dims();
  pairs.back() = 2;
  const Tensor high = broadcast_to(bytes_u8, pairs), low = shift_left(high, 4);
  const Tensor second =
      compare(iota({DType::kU8, pairs}, bytes_u8.rank() - 1), Direction::kEQ, constant(1, DType::kU8));
  return first == FirstCode::kLowBits ? select(second, high, low) : select(second, low, high);
}

// Returns the weight [E, in, out..] of experts.
Tensor dequantise_mxfp4(const Tensor& codes, const Tensor& scales) {
  Dims bytes = scales.dims();
  bytes.insert(bytes.end(), {Quantisation::kMxfp4Block / 2, 1});
  const Tensor value =
      value_of(both_codes(reshape(codes, bytes), FirstCode::kLowBits), values_of(Quantisation::Type::kMxfp4));
  const std::vector<float>& powers = mxfp4_scales();
  const Tensor table = literal({powers.begin(), powers.end()}, {DType::kF32, {static_cast<int64_t>(powers.size()), 1}});
  const Tensor factor = reshape(take(table, convert(scales, DType::kI32)), scales.dims());
  const Tensor scaled = value * expand(expand(factor, scales.rank()), scales.rank() + 1);
  Dims together = scales.dims();
  together.back() *= Quantisation::kMxfp4Block;
  return inputs_second(reshape(scaled, together));
}

// Returns factors [.., in]: each input gets the factor of its group from `factors` [.., groups]. `order` has the group
// of each input; null: each group has `group` successive inputs.
Tensor of_each_input(const Tensor& factors, int64_t inputs, int64_t group, const Tensor& order) {
  const int64_t groups = factors.dim(-1), rows = product(factors.dims()) / groups;
  Dims dims = factors.dims();
  dims.back() = inputs;
  if (groups == 1) return broadcast_to(factors, dims);
  if (order) {
    const int64_t experts = order.rank() == 2 ? order.dim(0) : 1;  // each expert has its own order
    const Tensor table = transpose(reshape(factors, {experts, rows / experts, groups}), {0, 2, 1});
    return reshape(transpose(take(table, reshape(order, {experts, inputs})), {0, 2, 1}), dims);
  }
  const Tensor spread =
      reshape(broadcast_to(reshape(factors, {rows, groups, 1}), {rows, groups, group}), {rows, groups * group});
  return reshape(slice(spread, 1, 0, inputs), dims);
}

// Returns the weight with the base's dims.
Tensor dequantise_groups(const QuantisedWeight& weight, const std::vector<Tensor>& parts) {
  const Quantisation& format = weight.format;
  Tensor codes = parts[0];
  Dims dims = codes.dims();
  if (format.four_bits()) {
    dims.back() *= 2;
    codes = reshape(shift_right(both_codes(expand(codes, codes.rank()), FirstCode::kLowBits), 4), dims);
  }
  const Tensor order = format.any_order ? parts[3] : Tensor();
  const Tensor scale = of_each_input(parts[1], dims.back(), format.group, order);
  const Tensor zero = of_each_input(parts[2], dims.back(), format.group, order);
  const Tensor steps = convert(codes, format.scales) - convert(zero, format.scales);
  const Tensor values = convert(steps * scale, DType::kF32);
  return format.inputs_first ? inputs_second(values) : reshape(values, weight.base.dims);
}

// Returns x with each element repeated along each dim, so that the result has `dims`.
Tensor repeat_to(const Tensor& x, const Dims& dims) {
  Dims from, to;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t blocks = x.dim(static_cast<int64_t>(d));
    from.push_back(blocks), to.push_back(blocks == 1 ? dims[d] : blocks);
    if (blocks == 1 || blocks == dims[d]) continue;
    from.push_back(1), to.push_back(dims[d] / blocks);
  }
  return reshape(broadcast_to(reshape(x, from), to), dims);
}

// Dequantises nested absmax values, of all experts at once. The weights themselves stay codes; the loop over blocks of
// tokens (models/blocks/experts/moe.h) dequantises an expert's weights when it reads them.
PackedExperts packed_experts(QuantisedWeight weight, std::vector<Tensor> parts, DType held) {
  if (weight.format.nested) parts = {parts[0], nested_absmax(parts[1], parts[2], parts[3])};
  weight.format.nested = false;
  return {std::move(parts), [weight, held](const std::vector<Tensor>& of_some) {
            QuantisedWeight some = weight;
            some.base.dims[0] = of_some[0].dim(0);
            return convert(dequantise(some, of_some), held);
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
  auto add = [&](const std::string& part, Dims dims, LogicalAxes axes, DType dtype) {
    out.parts.push_back({.hf_name = base.hf_name + part,
                         .dims = std::move(dims),
                         .axes = std::move(axes),
                         .role = Role::kQuantisedParts,
                         .layers = base.layers,
                         .dtype = dtype});
  };
  if (format.type == Quantisation::Type::kMxfp4) {
    Dims codes = inputs_last(base.dims), scales = codes;
    LogicalAxes axes = inputs_last(base.axes);
    internal_check(codes.back() % Quantisation::kMxfp4Block == 0, "{}: {} inputs are not whole blocks", base.hf_name,
                   codes.back());
    scales.back() /= Quantisation::kMxfp4Block;
    if (rules.fitting(axes, scales).dims.back() != rules.fitting(axes, codes).dims.back()) axes.back() = "";
    codes.back() /= 2;
    add("", codes, axes, DType::kU8);
    add(".scales", scales, axes, DType::kU8);
    return out;
  }
  if (format.type == Quantisation::Type::kFloat8) {
    const Dims codes = out.rows();
    LogicalAxes axes{base.axes.begin(), base.axes.begin() + static_cast<std::ptrdiff_t>(codes.size())};
    const LogicalAxes of_codes = axes;
    const auto split = rules.fitting(of_codes, codes).dims;
    add("", codes, of_codes, DType::kU8);
    Dims factors = codes;
    const size_t columns = codes.size() - 1, rows = columns - 1;
    const bool one_row_dim = rows == (base.has_experts() ? 1 : 0);
    for (const size_t d : {rows, columns}) {
      const int64_t block = d == rows ? format.block_rows : format.group;
      // If one block covers the whole dim, there is only one factor. Every device needs it, so it is not split.
      if (block == 0 || (block >= codes[d] && (d == columns || one_row_dim))) {
        factors[d] = 1, axes[d] = "";
        continue;
      }
      int64_t size = std::gcd(block, codes[d]);
      auto fits = [&] {
        Dims dims = codes;
        dims[d] /= size;
        return rules.fitting(of_codes, dims).dims[d] == split[d];
      };
      while (!fits() && size > 1) size = size % 2 == 0 ? size / 2 : 1;
      factors[d] = codes[d] / size;
      // If devices split the rows of the codes but not the rows of the factors, a mesh axis is unused in the factors.
      // This axis must not split the columns of the factors.
      const bool frees = axes[rows].empty() && !split[rows].empty();
      if (split[d].empty() || (d == columns && frees)) axes[d] = "";
    }
    add(".factors", factors, axes, DType::kF32);
    return out;
  }
  if (format.in_groups()) {
    Dims codes = format.inputs_first ? inputs_last(base.dims) : out.rows(), scales = codes;
    const Dims whole = codes;
    const int64_t inputs = codes.back(), group = format.group > 0 ? format.group : inputs;
    scales.back() = blocks_of(inputs, group);
    if (format.four_bits()) codes.back() /= 2;
    LogicalAxes axes = format.inputs_first ? inputs_last(base.axes) : base.axes;
    axes.resize(codes.size());
    LogicalAxes of_groups = axes;
    // Splits the inputs over devices only if each device has whole groups.
    const auto split = rules.fitting(axes, whole).dims.back();
    if (format.any_order || inputs % group != 0 || rules.fitting(axes, scales).dims.back() != split ||
        rules.fitting(axes, codes).dims.back() != split)
      axes.back() = of_groups.back() = "";
    add("", codes, axes, DType::kU8);
    add(".scales", scales, of_groups, format.scales);
    add(".zeros", scales, of_groups, DType::kU8);
    if (format.any_order) {
      const bool experts = base.of_experts();
      add(".order", experts ? Dims{base.dims[0], inputs} : Dims{inputs},
          experts ? LogicalAxes{base.axes[0], ""} : LogicalAxes{""}, DType::kI32);
    }
    return out;
  }
  if (!format.four_bits()) {
    add("", base.dims, base.axes, DType::kI8);
    add(".absmax", {base.dims.begin(), base.dims.end() - 1}, {base.axes.begin(), base.axes.end() - 1}, DType::kF32);
    return out;
  }
  const int64_t blocks = blocks_of(product(base.dims), Quantisation::kBlock);
  Dims codes{blocks_of(product(base.dims), 2)}, absmax{blocks};
  LogicalAxes axes{""};
  if (out.by_rows()) {
    codes = absmax = out.rows();
    codes.back() /= 2;
    absmax.back() /= Quantisation::kBlock;
    axes = {base.axes.begin(), base.axes.begin() + static_cast<std::ptrdiff_t>(codes.size())};
    if (rules.fitting(axes, absmax).dims.back() != rules.fitting(axes, out.rows()).dims.back()) axes.back() = "";
  }
  add("", codes, axes, DType::kU8);
  add(".absmax", absmax, axes, format.nested ? DType::kU8 : DType::kF32);
  if (!format.nested) return out;
  if (base.has_experts()) {
    const int64_t experts = base.dims[0];
    add(".nested_absmax", {experts, blocks_of(blocks / experts, Quantisation::kNestedBlock)}, {axes[0], ""},
        DType::kF32);
    add(".nested_offset", {experts}, {axes[0]}, DType::kF32);
    return out;
  }
  add(".nested_absmax", {blocks_of(blocks, Quantisation::kNestedBlock)}, {""}, DType::kF32);
  add(".nested_offset", {1}, {""}, DType::kF32);
  return out;
}

Tensor dequantise(const QuantisedWeight& weight, const std::vector<Tensor>& parts) {
  PathScope scope("dequantise");
  const Tensor& codes = parts[0];
  if (weight.format.type == Quantisation::Type::kMxfp4) return dequantise_mxfp4(codes, parts[1]);
  if (weight.format.in_groups()) return dequantise_groups(weight, parts);
  if (weight.format.type == Quantisation::Type::kFloat8)
    return reshape(convert(bitcast_convert(codes, DType::kF8E4M3FN), DType::kF32) * repeat_to(parts[1], codes.dims()),
                   weight.base.dims);
  if (!weight.format.four_bits()) return convert(codes, DType::kF32) * expand(parts[1] / 127.0, codes.rank() - 1);
  const Tensor absmax = weight.format.nested ? nested_absmax(parts[1], parts[2], parts[3]) : parts[1];
  Dims byte_dims = absmax.dims();
  byte_dims.insert(byte_dims.end(), {Quantisation::kBlock / 2, 1});
  const int64_t missing = product(absmax.dims()) * Quantisation::kBlock / 2 -
                          product(codes.dims());  // bytes that are missing in the last block
  const Tensor bytes = reshape(missing == 0 ? codes : pad(codes, {0}, {missing}), byte_dims);
  const Tensor value = value_of(both_codes(bytes, FirstCode::kHighBits), values_of(weight.format.type));
  const Tensor scaled = value * expand(expand(absmax, absmax.rank()), absmax.rank() + 1);
  if (weight.by_rows()) return reshape(scaled, weight.base.dims);
  return reshape(slice(reshape(scaled, {-1}), 0, 0, product(weight.base.dims)), weight.base.dims);
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
        layer.weights[name] = convert(dequantise(weight, parts), held);
    }
  };
}

}  // namespace fettle
