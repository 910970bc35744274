// OLMo 2 and 3: norms on the results of attention and MLP; one norm over all heads of q and one over all heads of k.
// OLMo 3 has a window on three of four layers; only the layers without a window have yarn. Sources:
// transformers/models/olmo2, olmo3.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_olmo2(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.attention_bias = r.flag("attention_bias", false);
  return c;
}

ModelConfig read_olmo3(const ConfigReader& r) {
  ModelConfig c = read_olmo2(r);
  c.rope = r.rope(500000);
  c.local_rope = r.local_rope(500000);
  if (!c.local_rope) c.local_rope.emplace().rope_theta = 500000;
  c.window = r.windows(c.num_hidden_layers, r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096,
                       [](int64_t layer) { return (layer + 1) % 4 != 0; });
  return c;
}

void add_olmo_layer(ParamList& list, const ModelConfig& c) {
  add_attention(list, c);
  add_norm(list, c, "self_attn.q_norm", c.num_attention_heads * c.head_dim);
  add_norm(list, c, "self_attn.k_norm", c.num_key_value_heads * c.head_dim);
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
  add_norm(list, c, "post_feedforward_layernorm", c.hidden_size);
}

Tensor olmo_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  Heads heads = d.project(layer, x);
  heads.q_BTNH = d.norm_of_all_heads(layer, "self_attn.q_norm", heads.q_BTNH);
  heads.k_BTKH = d.norm_of_all_heads(layer, "self_attn.k_norm", heads.k_BTKH);
  const Tensor mixed = d.attend(layer, d.rotate(layer, heads), cache);
  const Tensor y = x + d.norm(layer, "post_attention_layernorm", mixed);
  return y + d.norm(layer, "post_feedforward_layernorm", d.mlp(layer, y));
}

}  // namespace

Family olmo2_family() {
  return decoder_family("olmo2", "Olmo2ForCausalLM", read_olmo2, {add_olmo_layer, olmo_layer});
}

Family olmo3_family() {
  return decoder_family("olmo3", "Olmo3ForCausalLM", read_olmo3, {add_olmo_layer, olmo_layer});
}

}  // namespace fettle
