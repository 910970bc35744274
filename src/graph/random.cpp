#include "graph/random.h"

#include "graph/ops.h"

namespace fettle {
namespace {

// A 32-bit mixer: a bijection in which every output bit depends on every input bit (constants of "lowbias32").
Tensor mix(Tensor x) {
  x = bit_xor(x, shift_right(x, 16)) * 0x7feb352d;
  x = bit_xor(x, shift_right(x, 15)) * 0x846ca68b;
  return bit_xor(x, shift_right(x, 16));
}

}  // namespace

Tensor random_bits(const Dims& dims, const Tensor& key_u32) {
  Tensor index = constant(0, DType::kU32);
  int64_t stride = 1;
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    index = index + iota({DType::kU32, dims}, d) * static_cast<double>(stride & 0xffffffff);
    stride *= dims[d];
  }
  return mix(mix(index + key_u32) + key_u32);
}

Tensor random_bits_of_positions(int64_t features, const PositionKey& key) {
  auto u32 = [](const Tensor& x) { return expand(convert(x, DType::kU32), 2); };
  const Tensor in_row = u32(key.positions) * static_cast<double>(features) + iota({DType::kU32, {1, 1, features}}, 2);
  const Tensor row = mix(u32(key.sequences) * 0x9e3779b9 + key.seed);
  return mix(mix(in_row + key.seed) + row);
}

}  // namespace fettle
