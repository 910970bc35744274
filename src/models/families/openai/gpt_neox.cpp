// GPT-NeoX (Pythia): LayerNorm; one module for q, k and v, whose outputs are grouped by head; rope on a quarter of a
// head's dims. Attention and MLP both read the layer's input, or the MLP reads the sum of the input and attention's
// result (RedPajama-INCITE). Source: transformers/models/gpt_neox.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_gpt_neox(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.hidden_size / c.num_attention_heads;
  c.attention_module = "attention";
  c.norm = Norm::kLayer;
  c.norm_eps = r.number("layer_norm_eps", 1e-5);
  c.hidden_act = r.text("hidden_act", "gelu");
  c.rope = r.rope(r.number("rotary_emb_base", 10000), r.number("rotary_pct", 0.25));
  c.attention_bias = r.flag("attention_bias", true);
  c.parallel_mlp = r.flag("use_parallel_residual", true);
  r.note_dropouts(c, {"hidden_dropout"});
  return c;
}

void add_neox_layer(ParamList& list, const ModelConfig& c) {
  const SizedAxis d{c.hidden_size, "embed"}, heads{c.hidden_size, "heads"}, f{c.intermediate_size, "mlp"};
  add_norm(list, c, "input_layernorm", d.size);
  list.linear("attention.query_key_value", {3 * d.size, "heads"}, d, {.bias = c.attention_bias});
  list.linear("attention.dense", d, heads, {.bias = c.attention_bias});
  add_norm(list, c, "post_attention_layernorm", d.size);
  list.linear("mlp.dense_h_to_4h", f, d, {.bias = true});
  list.linear("mlp.dense_4h_to_h", d, f, {.bias = true});
}

Tensor neox_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const ModelConfig& c = d.config;
  const int64_t h = c.head_dim;
  const Tensor qkv = linear(d.f, layer, "attention.query_key_value", d.norm(layer, "input_layernorm", x));
  const Tensor by_head = d.f.sharding.constrain(reshape(qkv, {x.dim(0), x.dim(1), c.num_attention_heads, 3 * h}),
                                                {"batch", "length", "act_heads", ""});
  const Heads heads{slice(by_head, 3, 0, h), slice(by_head, 3, h, 2 * h), slice(by_head, 3, 2 * h, 3 * h)};
  const Tensor y = x + d.attend(layer, d.rotate(layer, heads), cache, "dense");
  const Tensor& seen = c.parallel_mlp ? x : y;
  const Tensor inner = linear(d.f, layer, "mlp.dense_h_to_4h", d.norm(layer, "post_attention_layernorm", seen));
  const Tensor hidden = d.f.sharding.constrain(activation(c.hidden_act, inner), {"batch", "length", "act_mlp"});
  return y + linear(d.f, layer, "mlp.dense_4h_to_h", hidden);
}

}  // namespace

Family gpt_neox_family() {
  Family family = decoder_family("gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox, {add_neox_layer, neox_layer},
                                 {.layer = "gpt_neox.layers.{}.",
                                  .embedding = "gpt_neox.embed_in",
                                  .norm = "gpt_neox.final_layer_norm",
                                  .head = "embed_out"});
  family.ignored.insert(family.ignored.end(), {"*.attention.bias", "*.attention.masked_bias"});
  return family;
}

}  // namespace fettle
