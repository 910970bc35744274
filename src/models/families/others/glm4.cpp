// GLM-4: rope on half of a head's dims, which rotates neighbouring dims together; one module for gate and up. The type
// glm4 also has norms on the results of attention and MLP. Sources: transformers/models/glm, glm4.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_glm(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", 128);
  c.num_key_value_heads = r.integer("num_key_value_heads", 2);
  c.norm_eps = r.number("rms_norm_eps", 1.5625e-7);
  c.rope = r.rope(10000, 0.5);
  c.rope.interleaved = true;
  c.attention_bias = r.flag("attention_bias", true);
  c.output_bias = false;
  c.mlp = Mlp::kFusedGated;
  c.mlp_names.up = "mlp.gate_up_proj";
  return c;
}

void add_glm4_layer(ParamList& list, const ModelConfig& c) {
  add_pre_norm_layer(list, c);
  add_norm(list, c, "post_self_attn_layernorm", c.hidden_size);
  add_norm(list, c, "post_mlp_layernorm", c.hidden_size);
}

Tensor glm4_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor mixed = d.attention(layer, d.norm(layer, "input_layernorm", x), cache);
  const Tensor y = x + d.norm(layer, "post_self_attn_layernorm", mixed);
  return y + d.norm(layer, "post_mlp_layernorm", d.mlp(layer, d.norm(layer, "post_attention_layernorm", y)));
}

}  // namespace

Family glm_family() {
  return decoder_family("glm", "GlmForCausalLM", read_glm);
}

Family glm4_family() {
  return decoder_family("glm4", "Glm4ForCausalLM", read_glm, {add_glm4_layer, glm4_layer});
}

}  // namespace fettle
