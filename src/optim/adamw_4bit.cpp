#include "optim/adamw_4bit.h"

#include <cmath>

#include "graph/ops.h"
#include "optim/adamw.h"
#include "optim/blocks.h"

namespace fettle {
namespace {

constexpr int64_t kSmallestOfFourBits = 4096;
constexpr double kSmallestScale = 1e-12;  // lower bound of an absmax, as in torchao

// Returns the number of elements in a block.
int64_t block_size(const OptimOptions& options) {
  return std::llround(options.number("block_size"));
}

Tensor scalar_f32(double x) {
  return constant(x, DType::kF32);
}

// The shape of the packed codes.
Dims packed_dims(const OptimWeight& weight) {
  Dims dims = weight.shape.dims;
  if (dims.back() % 2 == 0) {
    dims.back() /= 2;
  } else {
    dims = weight.stack_dims();
    dims.push_back(product(weight.own_dims()) / 2);
  }
  return dims;
}

Tensor pack(const Tensor& codes, const OptimWeight& weight) {
  Dims pairs = packed_dims(weight);
  const Dims dims = pairs;
  pairs.push_back(2);
  const auto last = static_cast<int64_t>(dims.size());
  const Tensor x = reshape(codes, pairs);
  return convert(reshape(slice(x, last, 0, 1) * 16.0 + slice(x, last, 1, 2), dims), DType::kU8);
}

Tensor unpack(const Tensor& packed, const OptimWeight& weight) {
  const Tensor x = convert(packed, DType::kF32), high = floor(x * (1.0 / 16));
  Dims one = packed_dims(weight);
  const auto last = static_cast<int64_t>(one.size());
  one.push_back(1);
  return reshape(concatenate({reshape(high, one), reshape(x - high * 16.0, one)}, last), weight.shape.dims);
}

Tensor value_of(const Tensor& codes, bool is_signed) {
  const auto& map = four_bit_map(is_signed);
  Tensor out = scalar_f32(map[0]);
  for (size_t i = 1; i < map.size(); ++i)
    out = select(compare(codes, Direction::kGE, scalar_f32(static_cast<double>(i))), scalar_f32(map[i]), out);
  return out;
}

// Returns the code of the value nearest to x in [-1, 1]. If x is halfway between two values, returns the larger code.
Tensor code_of(const Tensor& x, bool is_signed) {
  const auto& map = four_bit_map(is_signed);
  Tensor out = scalar_f32(0);
  for (size_t i = 1; i < map.size(); ++i)
    out = select(compare(x, Direction::kGE, scalar_f32((map[i - 1] + map[i]) / 2)), scalar_f32(static_cast<double>(i)),
                 out);
  return out;
}

Tensor dequantize(const Tensor& codes, const Tensor& absmax, const OptimWeight& weight, const Blocks& blocks,
                  bool is_signed) {
  const Tensor x = to_blocks(unpack(codes, weight), weight, blocks);
  return from_blocks(value_of(x, is_signed) * spread(absmax, blocks), weight, blocks);
}

std::vector<Tensor> quantize(const Tensor& value, const OptimWeight& weight, const Blocks& blocks, bool is_signed) {
  const Tensor x = to_blocks(value, weight, blocks);
  const Tensor absmax = maximum(reduce_max(abs(x), blocks.elements), scalar_f32(kSmallestScale));
  const Tensor codes = from_blocks(code_of(x / spread(absmax, blocks), is_signed), weight, blocks);
  return {pack(codes, weight), absmax};
}

std::vector<OptimState> adamw_4bit_state(const OptimWeight& weight, const OptimOptions& options) {
  if (!has_four_bits(weight, block_size(options))) return adamw_state(weight, options);
  const Blocks blocks = blocks_of(weight, block_size(options));
  const Dims dims = packed_dims(weight);
  LogicalAxes axes = weight.axes;
  if (dims.size() != weight.shape.dims.size()) {
    axes.resize(static_cast<size_t>(weight.stacked));
    axes.emplace_back("");
  }
  std::vector<OptimState> out;
  for (const std::string name : {"m", "v"}) {
    out.push_back({name + "_codes", {DType::kU8, dims}, axes});
    out.push_back({name + "_absmax", {DType::kF32, blocks.absmax}, blocks.axes});
  }
  return out;
}

Updated adamw_4bit_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (!has_four_bits(weight, block_size(options))) return adamw_update(weight, options, in);
  const Blocks blocks = blocks_of(weight, block_size(options));
  UpdateInputs exact = in;
  exact.state = {dequantize(in.state[0], in.state[1], weight, blocks, true),
                 dequantize(in.state[2], in.state[3], weight, blocks, false)};
  Updated next = adamw_update(weight, options, exact);
  std::vector<Tensor> stored = quantize(next.state[0], weight, blocks, true);
  for (Tensor& array : quantize(next.state[1], weight, blocks, false)) stored.push_back(std::move(array));
  next.state = std::move(stored);
  return next;
}

}  // namespace

const std::array<double, 16>& four_bit_map(bool is_signed) {
  static constexpr std::array<double, 16> kSigned{-0.8875, -0.6625, -0.4375, -0.2125, -0.0775, -0.0325, -0.0055, 0,
                                                  0.0055,  0.0325,  0.0775,  0.2125,  0.4375,  0.6625,  0.8875,  1};
  static constexpr std::array<double, 16> kUnsigned = [] {
    std::array<double, 16> map{};
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<double>(i + 1) / 16;
    return map;
  }();
  return is_signed ? kSigned : kUnsigned;
}

bool has_four_bits(const OptimWeight& weight, int64_t block) {
  const int64_t elements = product(weight.own_dims());
  return elements >= kSmallestOfFourBits && elements % block == 0;
}

UpdateRule adamw_4bit_rule() {
  return {"adamw_torch_4bit",
          {{"block_size", "256", {"128", "256"}}},  // Transformers' default; torchao's is 128
          adamw_4bit_state,
          adamw_scalars,
          adamw_4bit_update};
}

}  // namespace fettle
