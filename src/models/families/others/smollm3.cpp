// SmolLM3: Llama without rope on every fourth layer. Source: transformers/models/smollm3.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_smollm3(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.rope = r.rope(2e6);
  c.num_key_value_heads = r.integer("num_key_value_heads", 4);
  c.attention_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.rotates = r.flags_by_layer("no_rope_layers", c.num_hidden_layers);  // 1: the layer has rope
  const int64_t interval = r.integer("no_rope_layer_interval", 4);
  for (int64_t layer = 0; c.rotates.size() < static_cast<size_t>(c.num_hidden_layers); ++layer)
    c.rotates.push_back((layer + 1) % interval != 0);
  if (r.flag("use_sliding_window", false) && r.has("sliding_window"))
    c.window = r.windows(c.num_hidden_layers, r.integer("sliding_window"),
                         [&](int64_t layer) { return !c.rotates[static_cast<size_t>(layer)]; });
  return c;
}

}  // namespace

Family smollm3_family() {
  return decoder_family("smollm3", "SmolLM3ForCausalLM", read_smollm3);
}

}  // namespace fettle
