#include "adapters/formats/weight_format.h"
#include "graph/ops.h"

namespace fettle {
namespace {

std::vector<Param> int8_parts(const QuantisedWeight& weight, const ShardingRules&) {
  const Param& base = weight.base;
  PartList parts(base);
  parts.add("", base.dims, base.axes, DType::kI8);
  parts.add(".absmax", {base.dims.begin(), base.dims.end() - 1}, {base.axes.begin(), base.axes.end() - 1}, DType::kF32);
  return parts.take();
}

Tensor dequantised_int8(const QuantisedWeight&, const std::vector<Tensor>& parts, DType dtype) {
  const Tensor& codes = parts[0];
  return convert(convert(codes, DType::kF32) * expand(parts[1] / 127.0, codes.rank() - 1), dtype);
}

}  // namespace

const WeightFormat kInt8Rows{int8_parts, dequantised_int8};

}  // namespace fettle
