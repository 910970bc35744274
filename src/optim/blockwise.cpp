#include "optim/blockwise.h"

#include "base/error.h"
#include "graph/ops.h"
#include "optim/blocks.h"

namespace fettle {
namespace {

constexpr int64_t kBlock = 256;

// Returns `by_decade(i)` for each element, where i is the element's decade. `holds(i)` is true for the elements in
// decade i or a later one.
template <typename Holds, typename Value>
Tensor choose(Holds holds, Value by_decade) {
  Tensor out = constant(by_decade(0), DType::kF32);
  for (int i = 1; i < kDecades; ++i) out = select(holds(i), constant(by_decade(i), DType::kF32), out);
  return out;
}

// Returns the values of the codes. Each value of the map that is not negative has a number. The numbers rise with the
// values: first comes 0, then the values of the decades, then 1. The first value of a decade has the number
// Decade::count, which is a power of two. In a signed map, the code of number n is 127 + n, and the code of the same
// value with a minus sign is 127 - n. In an unsigned map, the code of number n is n - 1.
Tensor value_of(const Tensor& codes, DynamicMap map) {
  const Tensor q = convert(codes, DType::kF32);
  const bool is_signed = map == DynamicMap::kSigned;
  const Tensor signed_number = is_signed ? q - 127.0 : q + 1.0;
  const Tensor number = abs(signed_number);
  auto f32 = [](double x) { return constant(x, DType::kF32); };
  auto in = [&](int i) { return compare(number, Direction::kGE, f32(decade(i, map).count)); };
  const Tensor step = choose(in, [&](int i) { return decade(i, map).step; });
  const Tensor zeroth =
      choose(in, [&](int i) { return decade(i, map).first - decade(i, map).count * decade(i, map).step; });
  Tensor value = zeroth + number * step;
  value = select(compare(number, Direction::kGE, f32(2 * decade(kDecades - 1, map).count)), f32(1), value);
  value = select(compare(number, Direction::kLT, f32(decade(0, map).count)), f32(0), value);
  return is_signed ? value * sign(signed_number) : value;
}

// Returns the code of the value nearest to x in [-1, 1].
Tensor code_of(const Tensor& x, DynamicMap map) {
  const bool is_signed = map == DynamicMap::kSigned;
  const Tensor size = abs(x);
  auto f32 = [](double value) { return constant(value, DType::kF32); };
  auto in = [&](int i) {
    return compare(size, Direction::kGT, f32((decade(i - 1, map).last() + decade(i, map).first) / 2));
  };
  const Tensor first = choose(in, [&](int i) { return decade(i, map).first; });
  const Tensor scale = choose(in, [&](int i) { return 1 / decade(i, map).step; });
  const Tensor count = choose(in, [&](int i) { return decade(i, map).count; });
  const Tensor nth = minimum(maximum(floor((size - first) * scale + 0.5), f32(0)), count - 1.0);
  const double zero = decade(0, map).count - 1, one = 2 * decade(kDecades - 1, map).count;
  Tensor number = select(compare(size, Direction::kLE, f32(decade(0, map).first / 2)), f32(zero), nth + count);
  // The map has the value 1, but not -1.
  const Tensor top = f32((decade(kDecades - 1, map).last() + 1) / 2);
  number = select(compare(x, Direction::kGT, top), f32(one), number);
  return convert(is_signed ? number * sign(x) + 127.0 : number - 1.0, DType::kU8);
}

}  // namespace

bool has_8bit_state(const OptimWeight& weight) {
  return !weight.embedding && product(weight.own_dims()) >= kSmallestQuantized;
}

std::vector<OptimState> quantized_state(const std::string& name, const OptimWeight& weight) {
  const Blocks blocks = blocks_of(weight, kBlock);
  const Shape codes = weight.shape.with_dtype(DType::kU8), absmax{DType::kF32, blocks.absmax};
  return {{name + "_codes", codes, weight.axes}, {name + "_absmax", absmax, blocks.axes}};
}

Tensor dequantize(const Quantized& state, const OptimWeight& weight, DynamicMap map) {
  const Blocks blocks = blocks_of(weight, kBlock);
  const Tensor value = value_of(to_blocks(state.codes, weight, blocks), map) * spread(state.absmax, blocks);
  return from_blocks(value, weight, blocks);
}

Quantized quantize(const Tensor& value, const OptimWeight& weight, DynamicMap map) {
  const Blocks blocks = blocks_of(weight, kBlock);
  const Tensor x = to_blocks(value, weight, blocks);
  const Tensor absmax = reduce_max(abs(x), blocks.elements);
  const Tensor zero = constant(0, DType::kF32);
  const Tensor inverse = select(compare(absmax, Direction::kGT, zero), 1.0 / absmax, zero);
  return {from_blocks(code_of(x * spread(inverse, blocks), map), weight, blocks), absmax};
}

}  // namespace fettle
