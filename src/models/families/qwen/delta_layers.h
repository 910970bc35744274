// Defines what Qwen3-Next and Qwen 3.5 have in common: some layers have linear attention (a gated delta net), the
// others full attention with an output gate.
#pragma once

#include "models/blocks/decoder_layer.h"

namespace fettle {

// Reads the fields that both families have, except those of the MLP.
ModelConfig read_delta_config(const ConfigReader& reader);
// Reads the fields of the mixture of experts in Qwen3-Next and Qwen 3.5 MoE, with a shared, gated expert for every
// token.
void read_delta_experts(const ConfigReader& reader, ModelConfig& config, const ExpertNames& names);

// Full attention: q_proj has a query and a gate for each head; the result is multiplied by sigmoid(gate).
void add_gated_attention(ParamList& list, const ModelConfig& config);
Tensor gated_attention(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD, LayerCache* cache);

// The projections of a layer's input: q|k|v [B, T, channels] before the convolution, the gate z [B, T, N H], and b and
// a [B, T, N], from which the rate and the decay are computed.
struct DeltaInputs {
  Tensor qkv, z, b, a;
};
// Adds the other parameters of linear attention: convolution, decays, norm and out_proj, all under "linear_attn".
void add_delta_net(ParamList& list, const ModelConfig& config);
Tensor delta_net(const Decoder& decoder, const Layer& layer, const DeltaInputs& inputs, LayerCache* cache);

// Returns the cache's arrays: keys and values of full attention; the convolution's last inputs and the state of linear
// attention.
std::vector<CacheArray> delta_cache(const ModelConfig& config);

}  // namespace fettle
