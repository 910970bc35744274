// Qwen 3 with a mixture of experts; some layers may have a dense MLP. Source: transformers/models/qwen3_moe.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/experts.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_moe(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  read_qwen_experts(r, c, ExpertNames::one_by_one(), {.size = 768, .count = 128, .per_token = 8, .normalised = false});
  r.refuse_unless("use_sliding_window", false);
  return c;
}

}  // namespace

Family qwen3_moe_family() {
  return with_mlp_as_experts_in_peft(decoder_family("qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe));
}

}  // namespace fettle
