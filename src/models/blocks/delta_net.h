// Defines the gated delta rule, a linear attention whose state is a matrix per head. Sources: Yang et al. 2024, "Gated
// Delta Networks"; transformers/models/qwen3_next.
//
// Documents in one line do not influence each other: the state starts again at each document.
#pragma once

#include "models/blocks/layers.h"

namespace fettle {

struct DeltaRule {
  Tensor out_BTNH;    // f32
  Tensor state_BNKH;  // the state after the last position, f32
};

// Computes the following at each position, for each head. The head's state S [K, H] is zero at the start of a document.
//   S <- exp(decay) S
//   S <- S + beta k (v - S^T k)^T
//   out = S^T q
// All inputs are f32: q, k [B, T, N, K], v [B, T, N, H], decay and beta [B, T, N]. If `state` is given, the first
// document of each line starts from it instead of zero.
//
// Positions are computed in chunks. Within a chunk, the updates are the solution of a triangular system. The inverse of
// the system's matrix is built up from blocks of 1, 2, 4, ... positions.
DeltaRule gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& decay, const Tensor& beta,
                           const Tensor& segments_BT, int64_t chunk, const Tensor& state = {});

}  // namespace fettle
