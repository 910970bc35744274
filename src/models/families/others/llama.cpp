// Llama 2, 3 and 3.1 (rope scaling). Source: transformers/models/llama.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_llama(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  return c;
}

}  // namespace

Family llama_family() {
  return decoder_family("llama", "LlamaForCausalLM", read_llama);
}

}  // namespace fettle
