// Defines Ring: the turns of ring attention (ring_attention.h), forward and backward.
#pragma once

#include <vector>

#include "models/blocks/attention.h"

namespace fettle {

// In turn r, device d computes the scores of its own queries with the keys of device d - r (modulo n, the number of
// devices). Turn 0 is the first.
//
// The positions of a device form one contiguous part or two parts, the chunks d and 2n - 1 - d of the line. With two
// parts, a device computes two pairs of chunks in each turn r > 0. The first pair is the device's second chunk of
// queries with the first chunk of keys. The second pair depends on d - r. If d - r >= 0, it is the first chunk of
// queries with the first chunk of keys; else it is the second chunk of queries with the second chunk of keys. In turn
// 0, a device computes all pairs except its first chunk of queries with its second chunk of keys. So the causal mask
// hides some scores in the pairs of a chunk with itself, and none in the other pairs that a device computes.
struct Ring {
  int64_t devices = 1;
  int64_t parts = 1;             // 1 or 2
  int64_t turns = 0;             // number of turns after the first
  Partition keys, key_segments;  // how arrays [B, D, K, S, H] and [B, D, S] are split; one mesh axis splits D
  AttentionOptions options;

  // The letters of shapes are explained in ring_attention.cpp. `operands`: queries [M, B, D, K, T, G, H], keys and
  // values [P, B, D, K, S, H], segments of queries [M, B, D, T] and keys [P, B, D, S], then the window and the sinks if
  // options have them. Returns [M, B, D, K, T, G, H of values].
  Tensor attend(const std::vector<Tensor>& operands) const;
};

}  // namespace fettle
