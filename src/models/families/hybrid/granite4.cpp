// Granite 4: Granite 3's factors; layers with Mamba2 or with attention; one MLP for all tokens and, in some sizes,
// experts beside it. Models without Mamba2 have rope; models with Mamba2 have no rope. Source:
// transformers/models/granitemoehybrid.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/experts/moe.h"
#include "models/blocks/mamba2.h"
#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/hybrid/mamba_config.h"
#include "models/families/others/granite.h"

namespace fettle {
namespace {

ModelConfig read_granite4(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("attention_bias", false);
  c.embedding_scale = r.number("embedding_multiplier", 1);
  c.attention_scale = r.number("attention_multiplier", 1);
  c.residual_scale = r.number("residual_multiplier", 1);
  c.logit_scale = 1 / positive_number(r, "logits_scaling", 1);
  const std::string positions = r.text("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope")
    throw UserError("{}: position_embedding_type is '{}'; rope and nope are implemented", r.file(), positions);
  if (positions == "nope") c.rotates.assign(static_cast<size_t>(c.num_hidden_layers), false);
  Mamba2 m;
  m.layers = mamba_layers(r, c.num_hidden_layers, {"mamba", "linear_attention"}, {"attention", "full_attention"});
  if (m.layers.count() > 0) {
    read_mamba2(r, m, c.hidden_size * r.integer("mamba_expand", 2));
    r.refuse_unless("hidden_act", "silu");  // Fettle's Mamba2 always has silu
    if (m.groups != 1)
      throw UserError("{}: mamba_n_groups is {}; for Granite, only 1 is implemented", r.file(), m.groups);
    c.mamba2 = m;
  }
  c.mlp = Mlp::kFusedGated;
  c.mlp_names = {.up = "shared_mlp.input_linear", .down = "shared_mlp.output_linear"};
  c.expert_size = c.intermediate_size;
  c.intermediate_size = r.integer("shared_intermediate_size", 1024);
  if (r.has("num_local_experts") && r.count("num_local_experts") == 0) return c;
  read_granite_experts(r, c);
  return c;
}

void add_granite4_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  if (c.mamba2) {
    add_mamba2(list.in_layers(c.mamba2->layers.numbers), c);
    list.in_layers(layers_without(c.mamba2->layers, c.num_hidden_layers).numbers);
  }
  if (!c.mamba2 || c.mamba2->layers.count() < c.num_hidden_layers) add_attention(list, c);
  list.in_layers();
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  if (c.num_experts > 0) add_expert_params(list, c);
  add_mlp(list, c);
}

Tensor granite4_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  const Tensor mixed = layer.has("mamba.A_log") ? mamba2(d.f, layer, normal, cache) : d.attention(layer, normal, cache);
  const Tensor y = x + mixed * d.config.residual_scale;
  const Tensor in = d.norm(layer, "post_attention_layernorm", y);
  const Tensor fed = d.config.num_experts > 0 ? experts_mlp(d.f, layer, in) + d.mlp(layer, in) : d.mlp(layer, in);
  return y + fed * d.config.residual_scale;
}

}  // namespace

Family granite4_family() {
  Family family = decoder_family("granitemoehybrid", "GraniteMoeHybridForCausalLM", read_granite4,
                                 {add_granite4_layer, granite4_layer});
  family.cache = hybrid_cache;
  return without_classifier(family);
}

}  // namespace fettle
