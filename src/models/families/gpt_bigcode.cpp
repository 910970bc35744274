// GPT-BigCode (SantaCoder, StarCoder): GPT-2 with Linear weights [out, in] and, usually, one key head for all queries.
// Source: transformers/models/gpt_bigcode.
#include "models/families/families.h"
#include "models/gpt.h"

namespace fettle {
namespace {

ModelConfig read(const ConfigReader& r) {
  ModelConfig c = read_gpt_config(r, "gelu_pytorch_tanh");
  if (r.flag("multi_query", true)) c.num_key_value_heads = 1;
  return c;
}

std::vector<WeightRow> weights(const ModelConfig& config) {
  return gpt_weights(config, false);
}

Tensor forward(Forward& f) {
  return gpt_forward(f, false);
}

}  // namespace

Family gpt_bigcode_family() {
  Family family = gpt_family("gpt_bigcode", "GPTBigCodeForCausalLM");
  family.read = read;
  family.weights = weights;
  family.forward = forward;
  return family;
}

}  // namespace fettle
