#include "adapters/block_codes.h"
#include "adapters/formats/nibbles.h"
#include "adapters/formats/weight_format.h"
#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

std::vector<Param> mxfp4_parts(const QuantisedWeight& weight, const ShardingRules& rules) {
  const Param& base = weight.base;
  PartList parts(base);
  Dims codes = inputs_last(base.dims), scales = codes;
  LogicalAxes axes = inputs_last(base.axes);
  internal_check(codes.back() % Quantisation::kMxfp4Block == 0, "{}: {} inputs are not whole blocks", base.hf_name,
                 codes.back());
  scales.back() /= Quantisation::kMxfp4Block;
  if (rules.fitting(axes, scales).dims.back() != rules.fitting(axes, codes).dims.back()) axes.back() = "";
  codes.back() /= 2;
  parts.add("", codes, axes, DType::kU8);
  parts.add(".scales", scales, axes, DType::kU8);
  return parts.take();
}

// Returns the weight [E, in, out..] of experts.
Tensor dequantised_mxfp4(const QuantisedWeight&, const std::vector<Tensor>& parts, DType dtype) {
  const Tensor &codes = parts[0], &scales = parts[1];
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
  return convert(inputs_second(reshape(scaled, together)), dtype);
}

}  // namespace

const WeightFormat kMxfp4Blocks{mxfp4_parts, dequantised_mxfp4};

}  // namespace fettle
