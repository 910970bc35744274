// Phi 1, 1.5 and 2: attention and MLP read the same LayerNorm, rope on a part of a head's dims, biases everywhere, also
// on the head. Source: transformers/models/phi.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_phi(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm = Norm::kLayer;
  c.norm_eps = r.number("layer_norm_eps", 1e-5);
  c.rope = r.rope(10000, 0.5);
  if (const int64_t dims = c.rope.rotary_dim(c.head_dim); dims <= 0 || dims % 2 != 0)
    throw UserError("{}: partial_rotary_factor rotates {} of {} dims of a head, wanted an even number above 0",
                    r.file(), dims, c.head_dim);
  c.mlp = Mlp::kPlain;
  c.mlp_names = {.up = "mlp.fc1", .down = "mlp.fc2"};
  c.hidden_act = r.text("hidden_act", "gelu_new");
  c.attention_bias = c.mlp_bias = c.head_bias = true;
  c.qk_norm = r.flag("qk_layernorm", false);
  r.refuse_unless("tie_word_embeddings", false);
  r.note_dropouts(c, {"resid_pdrop", "embd_pdrop"});
  return c;
}

void add_phi_layer(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, q{c.num_attention_heads * c.head_dim, "heads"},
      kv{c.num_key_value_heads * c.head_dim, "kv_heads"};
  add_norm(list, c, "input_layernorm", d.size);
  list.linear("self_attn.q_proj", q, d, {.bias = true, .head_rows = c.head_dim});
  list.linear("self_attn.k_proj", kv, d, {.bias = true, .head_rows = c.head_dim});
  list.linear("self_attn.v_proj", kv, d, {.bias = true});
  list.linear("self_attn.dense", d, q, {.bias = true});
  if (c.qk_norm) {
    add_norm(list, c, "self_attn.q_layernorm", c.head_dim);
    add_norm(list, c, "self_attn.k_layernorm", c.head_dim);
  }
  add_mlp(list, c);
}

Tensor phi_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  Heads heads = d.project(layer, normal);
  if (d.config.qk_norm) {
    heads.q_BTNH = d.norm(layer, "self_attn.q_layernorm", heads.q_BTNH);
    heads.k_BTKH = d.norm(layer, "self_attn.k_layernorm", heads.k_BTKH);
  }
  return x + d.attend(layer, d.rotate(layer, heads), cache, "dense") + d.mlp(layer, normal);
}

}  // namespace

Family phi_family() {
  return decoder_family("phi", "PhiForCausalLM", read_phi, {add_phi_layer, phi_layer},
                        {.norm = "model.final_layernorm"});
}

}  // namespace fettle
