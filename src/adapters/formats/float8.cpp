#include <numeric>

#include "adapters/formats/weight_format.h"
#include "graph/ops.h"

namespace fettle {
namespace {

std::vector<Param> float8_parts(const QuantisedWeight& weight, const ShardingRules& rules) {
  const Param& base = weight.base;
  const Quantisation& format = weight.format;
  PartList parts(base);
  const Dims codes = weight.rows();
  LogicalAxes axes{base.axes.begin(), base.axes.begin() + static_cast<std::ptrdiff_t>(codes.size())};
  const LogicalAxes of_codes = axes;
  const auto split = rules.fitting(of_codes, codes).dims;
  parts.add("", codes, of_codes, DType::kU8);
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
  parts.add(".factors", factors, axes, DType::kF32);
  return parts.take();
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

Tensor dequantised_float8(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype) {
  const Tensor values = convert(bitcast_convert(parts[0], DType::kF8E4M3FN), DType::kF32);
  return convert(reshape(values * repeat_to(parts[1], parts[0].dims()), weight.base.dims), dtype);
}

}  // namespace

const WeightFormat kFloat8Blocks{float8_parts, dequantised_float8};

}  // namespace fettle
