#include "step/embedding_noise.h"

#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

// Returns for each position the number of positions of its sequence: f32 [B, T]. All of them are in one line.
Tensor own_lengths(const Tensor& numbers_BT) {
  const Tensor same_BTT = compare(expand(numbers_BT, 2), Direction::kEQ, expand(numbers_BT, 1));
  return reduce_sum(convert(same_BTT, DType::kF32), {2});
}

}  // namespace

Tensor with_noise(const Tensor& x_BTD, double alpha, const PositionKey& key) {
  constexpr double kOwnStream = 0x6e656674;  // added to the seed, so that the noise differs from dropout's numbers
  const PositionKey own{key.seed + kOwnStream, key.sequences, key.positions};
  constexpr double kMost = 16777215;  // the largest 24-bit number; f32 represents all 24-bit numbers exactly
  const Tensor bits = convert(shift_right(random_bits_of_positions(x_BTD.dim(2), own), 8), DType::kF32);
  const Tensor uniform = bits * (2 / kMost) - 1.0;
  const Tensor most = rsqrt(own_lengths(key.sequences) * static_cast<double>(x_BTD.dim(2))) * alpha;
  return x_BTD + convert(uniform * expand(most, 2), x_BTD.dtype());
}

}  // namespace fettle
