// Defines the layers that families share. Shapes as in model.h's legend.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

// x_..I times the layer's `module`.weight [O.., I] (transposed: [I, O..]), plus its bias if there is one, plus the
// adapter. A fused module gives [.., parts, O].
Tensor linear(const Forward& f, const Layer& layer, const std::string& module, const Tensor& x,
              bool transposed = false);

// x / sqrt(mean(x^2) + eps) * (weight + weight_offset), in f32, returned in x's dtype.
Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps, double weight_offset = 0);
Tensor layer_norm(const Tensor& x, const Tensor& weight_D, const Tensor& bias_D, double eps);
// The norm of the config's kind with weights `name`.weight and, for LayerNorm, `name`.bias, of a layer or outside.
Tensor norm(const ModelConfig& config, const Layer& layer, const std::string& name, const Tensor& x);
Tensor norm(const ModelConfig& config, const Weights& weights, const std::string& name, const Tensor& x);

// cap * tanh(x / cap); x itself when cap is 0.
Tensor soft_cap(const Tensor& x, double cap);

// The activation functions of Hugging Face's ACT2FN: silu, gelu, gelu_new (= gelu_pytorch_tanh), relu. Throws
// UserError.
Tensor activation(const std::string& name, const Tensor& x);

// log(1 / (1 + exp(-x))); nothing overflows, and the slope at 0 is right.
Tensor log_sigmoid(const Tensor& x);

// Rows of the embedding times its scale, in f.compute, held to the residual stream's sharding.
Tensor embed(const Forward& f, const Tensor& table_VD, const Tensor& ids_BT);

// Runs `body(layer, x, layer index, cache)` over all layers as one scan; x_BTD goes through. With f.cache, the body
// gets the layer's [B, S, K, H] keys and values and returns them grown.
struct LayerCache {
  Tensor keys_BSKH, values_BSKH;
};
using LayerBody = std::function<Tensor(const Layer& layer, const Tensor& x_BTD, LayerCache* cache)>;
Tensor run_layers(Forward& f, const std::string& layer_prefix, const Tensor& x_BTD, const LayerBody& body);

}  // namespace fettle
