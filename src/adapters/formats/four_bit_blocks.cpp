#include "adapters/formats/four_bit_blocks.h"

#include "adapters/block_codes.h"
#include "adapters/formats/nibbles.h"
#include "adapters/formats/weight_format.h"
#include "graph/composite.h"
#include "graph/ops.h"

namespace fettle {
namespace {

std::vector<Param> block_parts(const QuantisedWeight& weight, const ShardingRules& rules) {
  const Param& base = weight.base;
  const Quantisation& format = weight.format;
  PartList parts(base);
  const int64_t blocks = blocks_of(product(base.dims), Quantisation::kBlock);
  Dims codes{blocks_of(product(base.dims), 2)}, absmax{blocks};
  LogicalAxes axes{""};
  if (weight.by_rows()) {
    codes = absmax = weight.rows();
    codes.back() /= 2;
    absmax.back() /= Quantisation::kBlock;
    axes = {base.axes.begin(), base.axes.begin() + static_cast<std::ptrdiff_t>(codes.size())};
    if (rules.fitting(axes, absmax).dims.back() != rules.fitting(axes, weight.rows()).dims.back()) axes.back() = "";
  }
  parts.add("", codes, axes, DType::kU8);
  parts.add(".absmax", absmax, axes, format.nested ? DType::kU8 : DType::kF32);
  if (!format.nested) return parts.take();
  if (base.has_experts()) {
    const int64_t experts = base.dims[0];
    parts.add(".nested_absmax", {experts, blocks_of(blocks / experts, Quantisation::kNestedBlock)}, {axes[0], ""},
              DType::kF32);
    parts.add(".nested_offset", {experts}, {axes[0]}, DType::kF32);
    return parts.take();
  }
  parts.add(".nested_absmax", {blocks_of(blocks, Quantisation::kNestedBlock)}, {""}, DType::kF32);
  parts.add(".nested_offset", {1}, {""}, DType::kF32);
  return parts.take();
}

// The body of the composite "dequantise": `codes` and the f32 `absmax` of their blocks become the weight in f32.
Tensor weight_of(const QuantisedWeight& weight, const Tensor& codes, const Tensor& absmax) {
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

Tensor dequantised_block(const QuantisedWeight& weight, const std::vector<Tensor>& parts, DType dtype) {
  const Tensor absmax = weight.format.nested ? nested_absmax(parts[1], parts[2], parts[3]) : parts[1];
  return composite("dequantise", {{"values", values_of(weight.format.type)}}, {parts[0], absmax}, {},
                   [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
                     return {convert(weight_of(weight, in[0], in[1]), dtype)};
                   })[0];
}

}  // namespace

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

const WeightFormat kFourBitBlocks{block_parts, dequantised_block};

}  // namespace fettle
