// Defines the parts from which families build a decoder's layer. Each part has two functions: one that adds its
// parameters to the list, and one that computes it.
#pragma once

#include <optional>

#include "models/blocks/attention.h"
#include "models/blocks/rope.h"

namespace fettle {

// The values that all layers of one forward pass share.
class Decoder {
 public:
  explicit Decoder(Forward& f);

  Forward& f;
  const ModelConfig& config;

  Tensor norm(const Layer& layer, const std::string& name, const Tensor& x) const;

  // The three steps of attention: project, rotate, then seen_values or attend. Between two steps, a family may change
  // the heads.
  Heads project(const Layer& layer, const Tensor& x_BTD) const;  // q_proj, k_proj, v_proj, or fused
  Heads rotate(const Layer& layer, const Heads& heads) const;    // applies the layer's rope, if it has one
  // Returns attention's result before the output projection, [B, T, N H].
  Tensor seen_values(const Layer& layer, const Heads& heads, LayerCache* cache) const;
  // Applies the linear layer `output` of the attention module to the result of seen_values().
  Tensor attend(const Layer& layer, const Heads& heads, LayerCache* cache, const std::string& output = "o_proj") const;
  // Computes all three steps, with norms on the heads of q and k if the config has them.
  Tensor attention(const Layer& layer, const Tensor& x_BTD, LayerCache* cache) const;

  // Returns the norm over all heads together: each vector of N H values in x_BTNH is normalised as a whole.
  Tensor norm_of_all_heads(const Layer& layer, const std::string& name, const Tensor& x_BTNH) const;

  // Returns whether the layer has rope (i1); null when all layers do.
  Tensor rotates(const Layer& layer) const;

  // Returns down(act(gate(x)) * up(x)).
  Tensor gated(const Layer& layer, const MlpNames& names, const Tensor& x_BTD) const;
  // Computes the MLP, or the layer's experts with the shared expert.
  Tensor mlp(const Layer& layer, const Tensor& x_BTD) const;

 private:
  Tensor shared_expert(const Layer& layer, const Tensor& x_BTD) const;
  // These settings differ from layer to layer, so they are chosen inside the loop over the layers.
  Tensor window_of(const Layer& layer) const;  // null when no layer has a window
  Rope rope_of(const Layer& layer, const Tensor& window) const;

  // i32 [layers]. widths_: the window of each layer; null: all layers have the same window. rotated_: 1 for layers with
  // rope, else 0; null: all layers have rope.
  Tensor widths_, rotated_;
  Rope rope_;
  std::optional<Rope> local_rope_;
};

void add_norm(ParamList& list, const ModelConfig& config, const std::string& module, int64_t size);
void add_attention(ParamList& list, const ModelConfig& config);
void add_mlp(ParamList& list, const ModelConfig& config);
void add_gated(ParamList& list, const ModelConfig& config, const MlpNames& names, int64_t size, bool bias = false);

// The usual layer: y = x + attention(norm(x)), then y + mlp(norm(y)). The first function adds its parameters, and the
// second computes it.
void add_pre_norm_layer(ParamList& list, const ModelConfig& config);
Tensor pre_norm_layer(const Decoder& decoder, const Layer& layer, const Tensor& x_BTD, LayerCache* cache);

}  // namespace fettle
