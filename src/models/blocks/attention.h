// Defines attention: with or without a causal mask, within documents, with sliding windows, grouped heads and a cache.
#pragma once

#include "models/blocks/layers.h"
#include "models/blocks/run_layers.h"

namespace fettle {

// The score of a key that a query does not see: far below every real score; finite, so that a fully masked row stays
// finite.
inline constexpr double kMaskedScore = -1e30;

// Queries, keys and values, divided into heads. The H of the values may differ from the H of queries and keys.
struct Heads {
  Tensor q_BTNH, k_BTKH, v_BTKH;
};

struct AttentionOptions {
  double scale = 1;    // scores are q.k * scale
  double softcap = 0;  // scores become cap * tanh(score / cap); 0: no cap
  // ALiBi: one slope per query head, or empty. A head's slope times the distance of query and key is subtracted from
  // the scores.
  std::vector<double> slopes;
  bool causal = true;  // false: a query also sees later keys; not allowed with a cache or slopes
  Tensor sinks_N;      // one more logit per query head in the softmax, without a value vector; null: none
  // i32 scalar: number of positions in a chunk; a query sees only keys of its own chunk; null: no chunks
  Tensor chunk;
  // i32 scalar: number of keys that a query sees, including the key at its own position; null: all keys up to that
  // position. If `causal` is false, the query also sees as many later keys as earlier keys, and null means all keys.
  Tensor window;
};

// Returns the slopes of Press et al., "Train Short, Test Long", for any number of heads.
std::vector<double> alibi_slopes(int64_t heads);

// Returns the attention of q_BTNH over k_BTKH and v_BTKH, [B, T, N, H]. The softmax is computed in f32. A query sees
// the keys of its own document; with a causal mask, only those at or before its position. With a cache, new keys and
// values are written to it from position f.cache->filled on, and a query sees the keys in the cache. If the cache
// already has the new keys and values, k and v are null. With f.prompts, a query also sees the document that its own
// document continues; no kernel computes this, and f.attention_block limits the size of the scores.
//
// If there is neither a cache nor sinks, and if keys and values have the same H, this is the composite "attention"
// (graph/composite.h). Its inputs are q, k, v, f.segments (with options.chunk: the numbers of the chunks) and, if there
// is one, the window. Its attributes are the options: scale, softcap (f64), causal (i1), slopes (f32), window (i64; 0:
// no window, -1: the window is not a constant; the input gives it). When T is larger than f.attention_block, the
// body processes queries in blocks of that size and recomputes the scores in the backward pass, so that no [T, T] array
// exists (after Rabe & Staats, "Self-attention does not need O(n^2) memory"). With f.remat.scores_again, it recomputes
// the scores for smaller T, too. When a mesh axis splits the positions, the body is ring_attention()
// (ring_attention.h).
//
// With a cache and either one row (a piece of a prompt) or one query per row (the next token), without sinks, and if
// keys and values have the same H, this is the composite "cached_attention". Its inputs are q [B, T, N, H], the keys
// and values of all layers [layers, B, S, K, H], the number of this layer's slice (i32), f.cache->filled (i32 [B]: the
// position of each row's first query among the keys), and, if there are any, the window and the chunk. A key that comes
// after a row's last query may have any finite value. Its attributes are those of "attention" and chunked (i1). The
// body stores all scores, [T, S] for each row and head.
Tensor attention(const Forward& f, const Tensor& q_BTNH, const Tensor& k_BTKH, const Tensor& v_BTKH,
                 const AttentionOptions& options, LayerCache* cache);

}  // namespace fettle
