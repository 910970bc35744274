// Gemma 3, its text models: Gemma 2 with norms on q and k in place of the caps, more layers with a window, and a rope
// of their own for those. Source: transformers/models/gemma3.
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 256);
  c.hidden_act = r.text("hidden_activation", "gelu_pytorch_tanh");
  c.norm = Norm::kRmsPlusOne;
  c.post_norms = true;
  c.qk_norm = true;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.attention_bias = r.flag("attention_bias", false);
  c.attention_scale = 1 / std::sqrt(r.number("query_pre_attn_scalar", 256));
  c.logit_softcap = r.number("final_logit_softcapping", 0);
  c.rope = r.rope(1e6);
  if (!c.local_rope) c.local_rope.emplace().rope_theta = r.number("rope_local_base_freq", 1e4);
  const int64_t window = r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096;
  const int64_t pattern = r.integer("sliding_window_pattern", r.integer("_sliding_window_pattern", 6));
  c.window = r.windows(c.num_hidden_layers, window, [=](int64_t layer) { return (layer + 1) % pattern != 0; });
  r.refuse_unless("attn_logit_softcapping", nullptr);
  r.refuse_unless("use_bidirectional_attention", false);
  return c;
}

}  // namespace

Family gemma3_family() {
  return decoder_family("gemma3_text", "Gemma3ForCausalLM", read);
}

}  // namespace fettle
