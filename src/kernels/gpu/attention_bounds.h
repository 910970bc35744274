// Defines block_bounds: which blocks of a row see each other in attention.
#pragma once

#include <cstdint>

#include "graph/tensor.h"

namespace fettle::gpu {

// The blocks for which an instance of a kernel computes: blocks of queries that look for blocks of keys, or blocks of
// keys that look for blocks of queries.
struct BlockPairs {
  int64_t queries = 64, keys = 64;  // the sizes of blocks; the last block of a row may be partly empty
  bool of_queries = true;           // for each block of queries; else for each block of keys
  bool causal = true;
};

// Returns i32 [B, N, 4] for the N blocks of each row: first, whole_first, whole_end and end. No pair of positions
// outside the other blocks [first, end) is seen. Every pair in the blocks [whole_first, whole_end) is seen; this range
// lies within the other and may be empty. `window` is an i32 scalar, the keys that a query sees, or null. Built with
// ordinary ops, so that the kernels can skip what documents hide without reading it.
Tensor block_bounds(const Tensor& segments_BT, const Tensor& window, const BlockPairs& pairs);

}  // namespace fettle::gpu
