// GPT-BigCode (SantaCoder, StarCoder): GPT-2 with Linear weights [out, in] and, usually, one key head for all queries.
// Source: transformers/models/gpt_bigcode.
#include "models/families/families.h"
#include "models/families/openai/gpt.h"

namespace fettle {
namespace {

ModelConfig read_gpt_bigcode(const ConfigReader& r) {
  ModelConfig c = read_gpt_config(r, "gelu_pytorch_tanh");
  if (r.flag("multi_query", true)) c.num_key_value_heads = 1;
  return c;
}

}  // namespace

Family gpt_bigcode_family() {
  Family family = gpt_family("gpt_bigcode", "GPTBigCodeForCausalLM", false);
  family.read = read_gpt_bigcode;
  return family;
}

}  // namespace fettle
