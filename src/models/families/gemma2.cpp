// Gemma 2: norms of weight 1 + w before and after attention and MLP, capped scores and logits, a window on every other
// layer, scaled embedding, tied head. Source: transformers/models/gemma2.
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
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden_size));
  c.attention_bias = r.flag("attention_bias", false);
  c.attention_scale = 1 / std::sqrt(r.number("query_pre_attn_scalar", 256));
  auto cap = [&](const char* key, double otherwise) { return r.given(key) ? r.number(key, 0) : otherwise; };
  c.attention_softcap = cap("attn_logit_softcapping", 50);
  c.logit_softcap = cap("final_logit_softcapping", 30);
  const int64_t window = r.given("sliding_window") ? r.integer("sliding_window", 0) : 4096;
  c.window = r.windows(c.num_hidden_layers, window, [](int64_t layer) { return layer % 2 == 0; });
  r.refuse_unless("use_bidirectional_attention", false);
  return c;
}

}  // namespace

Family gemma2_family() {
  return decoder_family("gemma2", "Gemma2ForCausalLM", read);
}

}  // namespace fettle
