// Defines the IR of attention's three GPU kernels: the forward pass, the gradient of queries, and the gradients of keys
// and values.
//
// Source of the method: Dao, "FlashAttention-2". An instance computes one block of queries (or of keys) of one head, in
// a loop over the blocks that it sees (attention_bounds.h). No [T, T] array exists. Each element is written by one
// instance and summed in a fixed order, so results are the same each time.
#pragma once

#include <cstdint>
#include <string>

#include "base/arrays/shape.h"

namespace fettle::gpu {

// The sizes and options of the attention that one device computes. models/blocks/attention.h defines attention. This
// kernel has no cache, no sinks, and the same H for keys and values.
struct AttentionShape {
  int64_t rows = 0, length = 0, heads = 0, key_heads = 0, width = 0;  // B, T, N, K, H
  DType dtype = DType::kBF16;  // the dtype of q, k, v, o and their gradients: bf16, f16 or f32
  bool causal = true;
  // The number of keys that a query sees, including its own; 0: no limit, -1: an operand has the number. A limit
  // requires `causal`.
  int64_t window = 0;
  float scale = 1, softcap = 0;
  bool slopes = false;  // ALiBi's slopes are an operand

  int64_t padded_width() const;  // H rounded up to a power of two, at least 16
};

// The sizes of blocks (powers of two from 16 on) and of the group of threads that computes one instance.
struct AttentionTiles {
  int64_t queries = 64, keys = 64;
  int warps = 4, stages = 1;  // stages: number of blocks that are read ahead, plus 1
};

// Returns the number of blocks for `length` positions; the last block may be partly empty.
int64_t blocks_of(int64_t length, int64_t block);

// Each function below returns a module with one kernel, the function `name`. The kernel's operands and results, in this
// order:
//   q [B, T, N, H], k and v [B, T, K, H], segments i32 [B, T],
//   bounds i32 [B, blocks, 4] (attention_bounds.h): for blocks of keys in key_gradient_ir, else for blocks of queries,
//   window i32 [] if `shape.window` is -1, slopes f32 [N] if `shape.slopes`,
//   in both gradient kernels: d_o [B, T, N, H], log_sum f32 [B, N, T] and dots f32 [B, N, T] (dot products of o, d_o),
//   the results: o and log_sum in attention_ir, dq in query_gradient_ir, dk and dv in key_gradient_ir.
// log_sum is the logarithm to base 2 of the sum of exp(score) over the keys that a query sees. Program id x is the
// number of the block (blocks of queries are counted from the row's end). Program id y is the head (in key_gradient_ir,
// the key head). Program id z is the row.
std::string attention_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles);
std::string query_gradient_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles);
std::string key_gradient_ir(const std::string& name, const AttentionShape& shape, const AttentionTiles& tiles);

}  // namespace fettle::gpu
