// ERNIE 4.5 (dense): Llama, but rope rotates neighbouring dims together. Source: transformers/models/ernie4_5.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_ernie4_5(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r, true);
  c.head_dim = r.integer("head_dim", 128);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.rope = r.rope(500000);
  c.rope.interleaved = true;
  c.attention_bias = c.mlp_bias = r.flag("use_bias", false);
  return c;
}

}  // namespace

Family ernie4_5_family() {
  Family family = decoder_family("ernie4_5", "Ernie4_5ForCausalLM", read_ernie4_5);
  family.classifier.architecture = "";
  return family;
}

}  // namespace fettle
