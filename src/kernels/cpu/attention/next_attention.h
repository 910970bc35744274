// Defines attention of the next token of each row to a cache, on the CPU. Each key and each value that the token sees
// is read once, where it is.
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"
#include "kernels/cpu/threads.h"

namespace fettle::cpu {

struct BlockOps;

// The sizes and options of one call (models/blocks/attention.h defines the options). Arrays are dense and row-major.
// The query of row b has position filled[b] among the S keys of this row, and sees the keys up to its own position.
// Later keys are never read.
struct NextAttention {
  int64_t rows = 0, keys = 0, heads = 0, key_heads = 0, width = 0;  // B, S, N, K, H
  DType dtype = DType::kF32;                                        // of q, k, v and o: f32 or bf16
  int64_t window = 0;  // number of keys that a query sees, including its own; 0: no limit
  int64_t chunk = 0;   // number of keys in a chunk; a query sees only keys of its own chunk; 0: no chunks
  float scale = 1, softcap = 0;
  const float* slopes = nullptr;                        // [N], or null
  const int32_t* filled = nullptr;                      // [B]; numbers out of range are clamped to 0 ... S - 1
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // q [B, 1, N, H]; k and v [B, S, K, H]
  const BlockOps* ops = nullptr;                        // null: the fastest table of functions for this CPU
};

// Returns how many bytes of scratch memory attend_next() needs. The number depends only on the dims.
int64_t next_attention_workspace(const NextAttention& problem);

// Computes o [B, 1, N, H] in the problem's dtype. A row's result depends neither on the other rows nor on the number of
// threads.
void attend_next(const NextAttention& problem, void* o, void* workspace, const ParallelFor& parallel);

// Returns the FLOPs of the two products if all keys are seen.
int64_t next_attention_flops(const NextAttention& problem);

}  // namespace fettle::cpu
