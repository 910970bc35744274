// Defines permuted_index: a seeded shuffle that is a pure function, so any position of it can be computed alone.
#pragma once

#include <cstdint>

namespace fettle {

// Mixes two words into one (SplitMix64's finaliser); the base of every random choice in this folder.
uint64_t mix_bits(uint64_t a, uint64_t b);

// The element at position `index` of the permutation of 0..count-1 that (seed, stream) names; `index` < `count`.
// A Feistel network with cycle walking: O(1) memory, the same on every platform, any index without its predecessors.
int64_t permuted_index(int64_t index, int64_t count, uint64_t seed, uint64_t stream);

}  // namespace fettle
