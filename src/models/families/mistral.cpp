// Mistral 7B: Llama with a sliding window. Source: transformers/models/mistral.
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_mistral(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  if (r.has("sliding_window")) c.window.assign(c.num_hidden_layers, r.integer("sliding_window"));
  return c;
}

}  // namespace

Family mistral_family() {
  return decoder_family("mistral", "MistralForCausalLM", read_mistral);
}

}  // namespace fettle
