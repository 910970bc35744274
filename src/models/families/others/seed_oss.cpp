// Seed-OSS: Llama with biases on q, k and v. Source: transformers/models/seed_oss.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_seed_oss(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", 128);
  c.num_key_value_heads = r.integer("num_key_value_heads", 8);
  c.attention_bias = r.flag("attention_bias", true);
  c.output_bias = r.flag("attention_out_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  r.note_dropouts(c, {"residual_dropout"});
  return c;
}

}  // namespace

Family seed_oss_family() {
  return decoder_family("seed_oss", "SeedOssForCausalLM", read_seed_oss);
}

}  // namespace fettle
