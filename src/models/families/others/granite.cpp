// Granite 3: Llama with factors on the embedding, the scores, the residual stream and the logits. The small sizes
// 1B-A400M and 3B-A800M have experts instead of the MLP. Sources: transformers/models/granite, granitemoe.
#include "models/families/others/granite.h"

#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_granite(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("attention_bias", false);
  c.mlp_bias = r.flag("mlp_bias", false);
  c.embedding_scale = r.number("embedding_multiplier", 1);
  c.attention_scale = r.number("attention_multiplier", 1);
  c.residual_scale = r.number("residual_multiplier", 1);
  c.logit_scale = 1 / positive_number(r, "logits_scaling", 1);
  return c;
}

ModelConfig read_granitemoe(const ConfigReader& r) {
  ModelConfig c = read_granite(r);
  c.mlp = Mlp::kExperts;
  read_granite_experts(r, c);
  return c;
}

}  // namespace

void read_granite_experts(const ConfigReader& r, ModelConfig& c) {
  c.experts = {.router = "block_sparse_moe.router.layer",
               .down = "block_sparse_moe.output_linear.weight",
               .gate_up = "block_sparse_moe.input_linear.weight",
               .router_module = "block_sparse_moe.router",
               .module = "block_sparse_moe.experts"};
  r.read_experts(c, r.integer("num_local_experts", 8), 2);
}

Family granite_family() {
  return without_classifier(decoder_family("granite", "GraniteForCausalLM", read_granite));
}

Family granitemoe_family() {
  return without_classifier(decoder_family("granitemoe", "GraniteMoeForCausalLM", read_granitemoe));
}

}  // namespace fettle
