// Defines AttentionSite: the shapes, partitions and options of one use of the composite "attention"
// (models/blocks/attention.h), as its kernels need them. Dims: B rows, T positions, N query heads, K key heads, H width
// of a head.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/composite.h"

namespace fettle {

struct AttentionSite {
  Shape q, k;                                  // global: [B, T, N, H] and [B, T, K, H]; v is like k
  Partition split_q, split_k, split_segments;  // one entry per dim
  Partition split_sums;                        // how arrays [B, N, T] (such as the log-sum-exp) are split
  Shape q_shard, k_shard;                      // one device's part
  int64_t devices = 1;                         // number of devices that compute different parts
  double scale = 1, softcap = 0;
  bool causal = true;
  int64_t window = 0;          // number of keys that a query sees; 0: no limit, -1: an operand has the number
  std::vector<double> slopes;  // one per query head, or empty

  Partition split_heads() const { return {{split_q.dims[2]}}; }  // how an array [N] is split
};

// Reads a use of the composite. Returns nullopt in these cases: T or H is split over devices; k, v or the segments are
// split in another way than q; the shapes or dtypes of q, k and v do not fit together; or there is a window without a
// causal mask.
std::optional<AttentionSite> read_attention(const CompositeSite& site);

}  // namespace fettle
