#include "data/batches/order.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace fettle {

int64_t permuted_index(int64_t index, int64_t count, uint64_t seed, uint64_t stream) {
  if (count <= 1) return 0;
  constexpr int kRounds = 6;
  // Each round mixes one half of the index's bits into the other. Halves of fewer than 4 bits would permute small sets
  // poorly.
  const int half_bits = std::max(4, (static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  const uint64_t key = mix_bits(mix_bits(seed, 0x66657474), stream);
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix_bits(key + static_cast<uint64_t>(round), right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace fettle
