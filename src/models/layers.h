// Defines the layers that families share. Shapes as in model.h's legend.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

// x_..I times the layer's `module`.weight [O, I] (transposed: [I, O]), plus its bias if there is one, plus the adapter.
Tensor linear(const Forward& f, const Layer& layer, const std::string& module, const Tensor& x,
              bool transposed = false);

// x / sqrt(mean(x^2) + eps) * weight, in f32, returned in x's dtype.
Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps);
Tensor layer_norm(const Tensor& x, const Tensor& weight_D, const Tensor& bias_D, double eps);

// The activation functions of Hugging Face's ACT2FN: silu, gelu_new (= gelu_pytorch_tanh), relu. Throws UserError.
Tensor activation(const std::string& name, const Tensor& x);

// Rows of the embedding, in f.compute, held to the residual stream's sharding.
Tensor embed(const Forward& f, const Tensor& table_VD, const Tensor& ids_BT);

// Angles of rotary embedding: cos and sin [B, T, 1, H/2] in f32. Source: RoFormer; llama3 scaling as in Transformers.
struct Rope {
  Tensor cos, sin;
};
Rope rope_tables(const ModelConfig& config, const Tensor& positions_BT);
Tensor apply_rope(const Rope& rope, const Tensor& x_BTNH);

// Runs `body(layer, x, layer index, cache)` over all layers as one scan; x_BTD goes through. With f.cache, the body
// gets the layer's [B, S, K, H] keys and values and returns them grown.
struct LayerCache {
  Tensor keys_BSKH, values_BSKH;
};
using LayerBody = std::function<Tensor(const Layer& layer, const Tensor& x_BTD, LayerCache* cache)>;
Tensor run_layers(Forward& f, const std::string& layer_prefix, const Tensor& x_BTD, const LayerBody& body);

}  // namespace fettle
