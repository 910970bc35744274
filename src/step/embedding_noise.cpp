#include "step/embedding_noise.h"

#include <cstdlib>

#include "graph/ops.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

// Returns x with each line moved by `steps` positions to the right, or to the left if `steps` is negative. The
// positions that become free are `fill`.
Tensor moved(const Tensor& x_BT, int64_t steps, double fill) {
  const int64_t length = x_BT.dim(1), kept = length - std::abs(steps);
  return steps > 0 ? pad(slice(x_BT, 1, 0, kept), {0, steps}, {0, 0}, fill)
                   : pad(slice(x_BT, 1, -steps, length), {0, 0}, {0, -steps}, fill);
}

// Returns for each position the largest of the values up to it, or with direction -1, from it on. The values are 0 or
// larger. Memory is linear in T, because each round doubles the reach.
Tensor running_maximum(Tensor x_BT, int64_t direction) {
  for (int64_t reach = 1; reach < x_BT.dim(1); reach *= 2) x_BT = maximum(x_BT, moved(x_BT, direction * reach, 0));
  return x_BT;
}

// Returns for each position the number of positions of its sequence: f32 [B, T]. They follow each other in one line.
Tensor own_lengths(const Tensor& numbers_BT) {
  constexpr double kNoNumber = -1;  // no sequence has this number
  const auto length = static_cast<double>(numbers_BT.dim(1));
  const Tensor place = iota(numbers_BT.shape().with_dtype(DType::kF32), 1), zero = constant(0, DType::kF32);
  const auto where_other = [&](int64_t steps, const Tensor& value) {
    return select(compare(numbers_BT, Direction::kNE, moved(numbers_BT, steps, kNoNumber)), value, zero);
  };
  const Tensor first = running_maximum(where_other(1, place), 1);
  const Tensor after_last = length - running_maximum(where_other(-1, length - (place + 1.0)), -1);
  return after_last - first;
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
