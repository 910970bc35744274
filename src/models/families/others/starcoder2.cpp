// StarCoder 2: LayerNorm, biases everywhere, a plain MLP, a window on all layers, tied head.
// Source: transformers/models/starcoder2.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_starcoder2(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.norm = Norm::kLayer;
  c.norm_eps = r.number("norm_epsilon", 1e-5);
  c.mlp = Mlp::kPlain;
  c.mlp_names = {.up = "mlp.c_fc", .down = "mlp.c_proj"};
  c.hidden_act = r.text("hidden_act", "gelu_pytorch_tanh");
  c.attention_bias = c.mlp_bias = r.flag("use_bias", true);
  if (r.has("sliding_window")) c.window.assign(c.num_hidden_layers, r.integer("sliding_window"));
  r.refuse_unless("mlp_type", "default");
  r.refuse_unless("norm_type", "layer_norm");
  r.note_dropouts(c, {"residual_dropout", "embedding_dropout"});
  return c;
}

}  // namespace

Family starcoder2_family() {
  return decoder_family("starcoder2", "Starcoder2ForCausalLM", read_starcoder2);
}

}  // namespace fettle
