// Gemma 3: the text models of 270M and 1B, and the text part of the larger ones. They differ from Gemma 2 in three
// ways: norms on q and k instead of the caps, more layers with a window, and a separate rope for those layers. Source:
// transformers/models/gemma3.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/google/gemma.h"
#include "models/wrapped.h"

namespace fettle {
namespace {

ModelConfig read_gemma3(const ConfigReader& r) {
  ModelConfig c = read_sandwich_gemma_config(r);
  c.qk_norm = true;
  c.logit_softcap = r.number("final_logit_softcapping", 0);
  c.rope = r.rope(1e6);
  if (!c.local_rope) c.local_rope.emplace().rope_theta = r.number("rope_local_base_freq", 1e4);
  const int64_t pattern = r.integer("sliding_window_pattern", r.integer("_sliding_window_pattern", 6));
  c.window = r.windows(c.num_hidden_layers, gemma_window(r), [=](int64_t layer) { return (layer + 1) % pattern != 0; });
  r.refuse_unless("attn_logit_softcapping", nullptr);
  return c;
}

// The published 4B to 27B models leave out the fields of text_config that have the defaults of Transformers'
// Gemma3TextConfig.
ModelConfig read_gemma3_with_defaults(const ConfigReader& r) {
  nlohmann::json all{{"vocab_size", 262208},         {"num_attention_heads", 8},
                     {"num_key_value_heads", 4},     {"head_dim", 256},
                     {"rms_norm_eps", 1e-6},         {"max_position_embeddings", 131072},
                     {"query_pre_attn_scalar", 256}, {"hidden_activation", "gelu_pytorch_tanh"}};
  all.update(r.json());
  return read_gemma3(ConfigReader(all, r.file()));
}

}  // namespace

Family gemma3_family() {
  Family family = decoder_family("gemma3_text", "Gemma3ForCausalLM", read_gemma3, {add_sandwich_layer, sandwich_layer});
  family.classifier.architecture = "Gemma3TextForSequenceClassification";
  return family;
}

Family gemma3_wrapped_family() {
  const Family text =
      decoder_family("gemma3", "", read_gemma3_with_defaults, {add_sandwich_layer, sandwich_layer}, names_in_wrapped());
  return wrapped_family(text, "gemma3", "Gemma3ForConditionalGeneration");
}

}  // namespace fettle
