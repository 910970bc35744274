// Defines the layers that families share. Shapes use model.h's legend. A composite is a named part of the program,
// which a kernel may replace (graph/composite.h).
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

struct LinearForm {
  bool transposed = false;  // the weight is [I, O..], not [O.., I]
};

struct ProductForm {
  bool transposed = false;  // the weight is [I, O..]
  bool in_f32 = false;      // the result is f32, else of x's dtype
};
// Returns x_..I times weight [O.., I]. The weight is first converted to x's dtype. For x_BTI, the product is the
// composite "linear". If `rules` is null, no input is split over devices.
Tensor product(const ShardingRules* rules, const Tensor& x, const Tensor& weight, ProductForm form = {});

// Returns the sum over all rows of left_BTM times right_BTN, [M, N] in f32. This is the composite "linear" with x
// turned: rows of `left` are the columns of x.
Tensor row_products(const Tensor& left_BTM, const Tensor& right_BTN);

// Returns x_BTI times weight [O.., I], plus low.scale * (x a^T) b^T. This is the composite "lora".
Tensor lora_product(const ShardingRules& rules, const Tensor& x_BTI, const Tensor& weight, const LowRank& low,
                    ProductForm form = {});

// Applies a layer's `module`: x_..I times `module`.weight [O.., I], plus the bias if there is one, plus the adapter. A
// fused module returns [.., parts, O].
Tensor linear(const Forward& f, const Layer& layer, const std::string& module, const Tensor& x, LinearForm form = {});
// Like linear(), but for a linear layer outside of the model's layers. `module` is its whole name.
Tensor linear_outside(const Forward& f, const std::string& module, const Tensor& x);

// Returns x / sqrt(mean(x^2) + eps) * (weight + weight_offset), computed in f32 and returned in x's dtype. If the
// weight is null, 1 is used instead. With `rules` and a weight, this is the composite "rms_norm" for x_BTD and x_BTNH.
Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps, double weight_offset = 0,
                const ShardingRules* rules = nullptr);
// Returns (x - mean) / sqrt(variance + eps) * weight_D + bias_D, computed in f32. `bias_D` may be null.
Tensor layer_norm(const Tensor& x, const Tensor& weight_D, const Tensor& bias_D, double eps);
// Applies a norm of the kind `config.norm`, inside or outside of the layers. The weights are `name`.weight and, for
// LayerNorm, `name`.bias.
Tensor norm(const ModelConfig& config, const Layer& layer, const std::string& name, const Tensor& x,
            const ShardingRules* rules = nullptr);
Tensor norm(const ModelConfig& config, const Weights& weights, const std::string& name, const Tensor& x,
            const ShardingRules* rules = nullptr);

// Returns cap * tanh(x / cap), or x itself when cap is 0.
Tensor soft_cap(const Tensor& x, double cap);

// Applies an activation function of Hugging Face's ACT2FN: silu (= swish), gelu, gelu_new (= gelu_pytorch_tanh,
// gelu_fast), relu, relu2 (the square of relu) or tanh. Throws UserError for another name.
Tensor activation(const std::string& name, const Tensor& x);

// Returns activation(name, gate) * up, the hidden values [B, T, F] of a gated MLP. This is the composite "gated".
Tensor gated(const ShardingRules& rules, const std::string& name, const Tensor& gate_BTF, const Tensor& up_BTF);

// Returns log(1 + exp(x)).
Tensor softplus(const Tensor& x);
// Returns log(1 / (1 + exp(-x))), without overflow and with the right derivative at 0.
Tensor log_sigmoid(const Tensor& x);

// Looks up the embeddings of the ids, multiplies them by the model's embedding scale, and applies f.disturb where
// Transformers' hooks of the table run. The result has the dtype f.compute and the residual stream's sharding.
Tensor embed(const Forward& f, const Tensor& table_VD, const Tensor& ids_BT);

}  // namespace fettle
