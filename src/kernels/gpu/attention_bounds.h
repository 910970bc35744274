// Defines block_bounds: which blocks of a row see each other in attention.
#pragma once

#include <cstdint>

#include "graph/tensor.h"

namespace fettle::gpu {

// Which blocks get bounds. Either each block of queries gets the bounds of the key blocks that it sees, or each block
// of keys gets the bounds of the query blocks that see it. An instance of a kernel computes one block that has bounds.
struct BlockPairs {
  int64_t queries = 64, keys = 64;  // the sizes of blocks; the last block of a row may be partly empty
  bool of_queries = true;           // true: bounds for each block of queries; false: for each block of keys
  bool causal = true;
};

// Returns i32 [B, N, 4] for the N blocks of each row: first, whole_first, whole_end and end. These are block numbers of
// the other side: of keys for a block of queries, and of queries for a block of keys. In blocks outside of [first,
// end), no pair of positions is seen. In blocks of [whole_first, whole_end), every pair is seen; this range lies within
// [first, end) and may be empty. `window` (an i32 scalar, or null) is the number of keys that a query sees. Ordinary
// ops compute the bounds before the kernel runs, so that the kernel skips the blocks that documents hide and does not
// read them.
Tensor block_bounds(const Tensor& segments_BT, const Tensor& window, const BlockPairs& pairs);

}  // namespace fettle::gpu
