// Defines attention on the CPU: forward and backward over blocks of queries and keys, without [T, S] arrays.
//
// Source of the method: Dao, "FlashAttention-2". Blocks that the causal mask, the window or the segments hide are not
// computed. Each element of a result is summed in a fixed order, which does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"
#include "kernels/cpu/threads.h"

namespace fettle::cpu {

struct BlockOps;

// The sizes and options of one call of attention (models/blocks/attention.h defines the options). Arrays are dense and
// row-major. In training, S = T and `first` = 0. With a cache, query i of a row has position `first` + i among the S
// keys. Keys from `first` + T on are not filled yet; they are never read.
struct AttentionProblem {
  int64_t rows = 0, length = 0, keys = 0, heads = 0, key_heads = 0, width = 0;  // B, T, S, N, K, H
  int64_t first = 0;                                                            // at most S - T
  DType dtype = DType::kF32;  // dtype of q, k, v, o and their gradients: f32 or bf16
  bool causal = true;
  int64_t window = 0;  // number of keys that a query sees, including its own; 0: no limit. A limit requires `causal`
  float scale = 1, softcap = 0;
  const float* slopes = nullptr;                        // [N], or null
  const int32_t* segments = nullptr;                    // [B, S]; a query has the segment of its position
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // q [B, T, N, H]; k and v [B, S, K, H]
  const BlockOps* ops = nullptr;                        // null: the fastest table of functions for this CPU

  int64_t filled() const { return first + length; }  // number of keys that may be read
};

// Return how many bytes of scratch memory attention() and attention_backward() need. The memory must be aligned to 64
// bytes. The number depends only on the dims.
int64_t attention_workspace(const AttentionProblem& problem);
int64_t attention_backward_workspace(const AttentionProblem& problem);

// Computes o [B, T, N, H] in the problem's dtype, and log_sum [B, N, T]: the log of the sum of exp(score) over the seen
// keys, in f32. `log_sum` may be null.
void attention(const AttentionProblem& problem, void* o, float* log_sum, void* workspace, const ParallelFor& parallel);
// Computes the gradients with respect to q, k and v from the forward pass's results and d_o [B, T, N, H]. Requires
// S = T and `first` = 0.
void attention_backward(const AttentionProblem& problem, const void* o, const float* log_sum, const void* d_o, void* dq,
                        void* dk, void* dv, void* workspace, const ParallelFor& parallel);

// Returns the FLOPs of the forward pass's matrix products (a multiplication and an addition count as two). Leaves out
// only the blocks that the causal mask or the window hides, because segments are not known in advance. The forward pass
// has two products, the backward pass five.
int64_t attention_flops(const AttentionProblem& problem);

}  // namespace fettle::cpu
