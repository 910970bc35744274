// Defines a short convolution over positions, which Mamba2, gated delta nets and LFM2 use. It starts again at each
// document.
#pragma once

#include "models/blocks/layers.h"
#include "models/blocks/run_layers.h"

namespace fettle {

// Returns, for each channel, a weighted sum of the last W positions: y[t] = sum over j of weight[j] x[t + j - W + 1].
// Positions of other documents count as 0. `before` [B, W - 1, C] has the W - 1 positions before the first one; null:
// they count as 0. x_BTC must have the dtype of the result.
Tensor causal_convolution(const Tensor& x_BTC, const Tensor& weight_CW, const Tensor& segments_BT,
                          const Tensor& before = {});

// Applies causal_convolution() in a layer. With a cache, each line is one document. The array cache->at("convolution")
// [B, W - 1, C] then has the positions before x, and is replaced by the last W - 1 real positions (Cache::real).
Tensor short_convolution(const Forward& f, const Tensor& x_BTC, const Tensor& weight_CW, LayerCache* cache);

// Returns the document numbers of a layer's positions: f.segments, or 1 everywhere during generation.
Tensor documents_of(const Forward& f, const Tensor& x_BTC);
// Returns f32 [B, T, 1]: 1 where a position is real, and 0 where it is padding, which must not change a state. Only for
// generation.
Tensor real_positions(const Forward& f, const Tensor& x_BTC);

// Returns the array of the cache that short_convolution uses, for the layers with a convolution.
CacheArray convolution_cache(const LayerSet& layers, int64_t width, int64_t channels);

}  // namespace fettle
