// Gemma 2: Gemma's norms, before and after attention and MLP; caps on scores and logits; a window on every other layer;
// a scaled embedding; a tied head. Source: transformers/models/gemma2.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/google/gemma.h"

namespace fettle {
namespace {

ModelConfig read_gemma2(const ConfigReader& r) {
  ModelConfig c = read_sandwich_gemma_config(r);
  auto cap = [&](const char* key, double otherwise) { return r.given(key) ? r.number(key, 0) : otherwise; };
  c.attention_softcap = cap("attn_logit_softcapping", 50);
  c.logit_softcap = cap("final_logit_softcapping", 30);
  c.window = r.windows(c.num_hidden_layers, gemma_window(r), [](int64_t layer) { return layer % 2 == 0; });
  return c;
}

}  // namespace

Family gemma2_family() {
  return decoder_family("gemma2", "Gemma2ForCausalLM", read_gemma2, {add_sandwich_layer, sandwich_layer});
}

}  // namespace fettle
