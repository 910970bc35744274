// Defines attention for positions that are split over a mesh axis (`sp`).
//
// Each device keeps its queries. The keys and values move around a ring of the devices, and partial results are merged
// by their running maximum and sum. After Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite
// Context". The backward pass moves keys, values and their gradients around the ring again; it reads only the inputs,
// the result and the log-sum-exp of the forward pass. So memory does not grow with the number of devices.
//
// With a causal mask, device i of n computes the chunks i and 2n - 1 - i of the 2n chunks of a line (the "zigzag"
// layout of the library ring-flash-attention). So every device computes the same number of scores. Together the devices
// compute about half of all T^2 scores. In three other cases, each device computes the contiguous positions that it
// stores: there is no causal mask; 2n does not divide the line's length; or a constant window reaches only few devices.
// In the last case, keys move only as far as the window reaches.
#pragma once

#include "models/blocks/attention.h"

namespace fettle {

struct RingSplit {
  Partition queries, keys;  // how q_BTNH and k_BTKH are split; one mesh axis splits T, and none splits H
  int64_t window = 0;       // options.window if it is a constant; 0: no window, -1: not a constant
};

// Returns whether `split` splits the positions over one axis of several devices, as ring_attention() needs.
bool is_ring(const RingSplit& split, const MeshAxes& mesh);

// Computes what the body of attention() computes without a cache. `inputs` are q, k, v, segments and, if there is one,
// the window. Each device computes at most `block` queries at a time.
Tensor ring_attention(const std::vector<Tensor>& inputs, const AttentionOptions& options, const RingSplit& split,
                      int64_t block);

}  // namespace fettle
