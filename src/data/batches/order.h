// Defines permuted_index: a seeded shuffle as a pure function, so that each position can be computed by itself.
#pragma once

#include <cstdint>

namespace fettle {

// Returns the element at position `index` (below `count`) of a permutation of 0..count-1. `seed` and `stream` select
// the permutation. The function is a Feistel network with cycle walking: it needs O(1) memory and gives the same result
// on every platform.
int64_t permuted_index(int64_t index, int64_t count, uint64_t seed, uint64_t stream);

}  // namespace fettle
