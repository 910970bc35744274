// EXAONE 4: norms on the results of attention and MLP, and on each head of q and k. The 32B has a window on three of
// four layers, and the layers without a window have no rope; the 1.2B has rope on all layers and no window. Source:
// transformers/models/exaone4.
#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_exaone4(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.qk_norm = true;
  if (r.given("sliding_window") && !r.has("sliding_window")) return c;
  // In the published configs, sliding_window_pattern is a string ("LLLG"). It is not read, because these configs also
  // have layer_types.
  const int64_t pattern = r.has("layer_types") ? 4 : r.integer("sliding_window_pattern", 4);
  c.window = r.windows(c.num_hidden_layers, r.integer("sliding_window", 4096),
                       [=](int64_t layer) { return (layer + 1) % pattern != 0; });
  for (const int64_t window : c.window) c.rotates.push_back(window > 0);
  return c;
}

void add_exaone4_layer(ParamList& list, const ModelConfig& c) {
  add_attention(list, c);
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
  add_norm(list, c, "post_feedforward_layernorm", c.hidden_size);
}

Tensor exaone4_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor y = x + d.norm(layer, "post_attention_layernorm", d.attention(layer, x, cache));
  return y + d.norm(layer, "post_feedforward_layernorm", d.mlp(layer, y));
}

}  // namespace

Family exaone4_family() {
  return decoder_family("exaone4", "Exaone4ForCausalLM", read_exaone4, {add_exaone4_layer, exaone4_layer});
}

}  // namespace fettle
