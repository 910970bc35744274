#include "step/embedding_noise.h"

#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "models/blocks/sequences.h"

namespace fettle {

Tensor with_noise(const Tensor& x_BTD, double alpha, const PositionKey& key, int64_t sequences) {
  constexpr double kOwnStream = 0x6e656674;  // added to the seed, so that the noise differs from dropout's numbers
  const PositionKey own{key.seed + kOwnStream, key.sequences, key.positions};
  constexpr double kMost = 16777215;  // the largest 24-bit number; f32 represents all 24-bit numbers exactly
  const Tensor bits = convert(shift_right(random_bits_of_positions(x_BTD.dim(2), own), 8), DType::kF32);
  const Tensor uniform = bits * (2 / kMost) - 1.0;
  const Tensor length = maximum(spread_by_sequence(tokens_by_sequence(key.sequences, sequences), key.sequences),
                                constant(1, DType::kF32));
  const Tensor most = rsqrt(length * static_cast<double>(x_BTD.dim(2))) * alpha;
  return x_BTD + convert(uniform * expand(most, 2), x_BTD.dtype());
}

}  // namespace fettle
