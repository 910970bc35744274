// Command R7B and A (Cohere 2): attention and MLP read the same norm, which has no bias; layers with a window have
// rope, the others none; a factor on the logits. Source: transformers/models/cohere2.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_cohere2(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = c.hidden_size / c.num_attention_heads;
  c.norm = Norm::kCentred;
  c.norm_eps = r.number("layer_norm_eps", 1e-5);
  c.attention_bias = r.flag("attention_bias", false);
  c.logit_scale = r.number("logit_scale", 0.0625);
  c.rope.interleaved = true;
  const int64_t pattern = r.integer("sliding_window_pattern", 4);
  c.window = r.windows(c.num_hidden_layers, r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096,
                       [=](int64_t layer) { return (layer + 1) % pattern != 0; });
  for (const int64_t window : c.window) c.rotates.push_back(window > 0);
  r.refuse_unless("use_qk_norm", false);
  r.refuse_unless("use_parallel_block", true);
  r.refuse_unless("use_gated_activation", true);
  r.refuse_unless("position_embedding_type", "rope_gptj");
  r.refuse_unless("rotary_pct", 1.0);
  return c;
}

void add_cohere2_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_attention(list, c);
  add_mlp(list, c);
}

Tensor cohere2_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor normal = d.norm(layer, "input_layernorm", x);
  return x + d.attention(layer, normal, cache) + d.mlp(layer, normal);
}

}  // namespace

Family cohere2_family() {
  return without_classifier(
      decoder_family("cohere2", "Cohere2ForCausalLM", read_cohere2, {add_cohere2_layer, cohere2_layer}));
}

}  // namespace fettle
