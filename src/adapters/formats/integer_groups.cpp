#include "adapters/formats/nibbles.h"
#include "adapters/formats/weight_format.h"
#include "graph/ops.h"

namespace fettle {
namespace {

std::vector<Param> group_parts(const QuantisedWeight& weight, const ShardingRules& rules) {
  const Param& base = weight.base;
  const Quantisation& format = weight.format;
  PartList parts(base);
  Dims codes = format.inputs_first ? inputs_last(base.dims) : weight.rows(), scales = codes;
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
  parts.add("", codes, axes, DType::kU8);
  parts.add(".scales", scales, of_groups, format.scales);
  parts.add(".zeros", scales, of_groups, DType::kU8);
  if (format.any_order) {
    const bool experts = base.of_experts();
    parts.add(".order", experts ? Dims{base.dims[0], inputs} : Dims{inputs},
              experts ? LogicalAxes{base.axes[0], ""} : LogicalAxes{""}, DType::kI32);
  }
  return parts.take();
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

Tensor dequantised_group(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype) {
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
  return convert(format.inputs_first ? inputs_second(values) : reshape(values, weight.base.dims), dtype);
}

}  // namespace

const WeightFormat kIntegerGroups{group_parts, dequantised_group};

}  // namespace fettle
