// Defines what Qwen3-Next and Qwen 3.5 have in common: some layers have linear attention (a gated delta net), the
// others full attention with an output gate.
#pragma once

#include "models/blocks/decoder_layer.h"

namespace fettle {

// Reads the fields that Qwen 3.5 and Qwen3-Next share, except those of the experts.
ModelConfig read_delta_config(const ConfigReader& reader);

// The results of linear attention's projections: q|k|v [B, T, channels] before the convolution, the gate z [B, T, N H],
// and b and a [B, T, N], for N value heads of H dims. The rate of the delta rule is computed from b, the decay from a.
struct DeltaInputs {
  Tensor qkv, z, b, a;
};
// The first function adds the parameters of a layer, and the second computes it: norm, linear or full attention, norm,
// MLP. The families store the projections of linear attention in different ways, so each family passes the functions
// that add and compute its projections.
void add_delta_layer(ParamList& list, const ModelConfig& config,
                     void (*add_projections)(ParamList& list, const DeltaNet& net, const SizedAxis& embed));
Tensor delta_layer(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD, LayerCache* cache,
                   DeltaInputs (*project)(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD));

// Returns the cache's arrays: keys and values of full attention; the convolution's last inputs and the state of linear
// attention.
std::vector<CacheArray> delta_cache(const ModelConfig& config);

}  // namespace fettle
