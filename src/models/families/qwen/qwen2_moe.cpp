// Qwen 2 with a mixture of experts and a shared, gated expert for every token. Some layers may have a dense MLP.
// Source: transformers/models/qwen2_moe.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"
#include "models/families/qwen/experts.h"

namespace fettle {
namespace {

ModelConfig read_qwen2_moe(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("qkv_bias", true);
  c.output_bias = false;
  read_qwen_experts(r, c, ExpertNames::one_by_one(), {.size = 1408, .count = 60, .per_token = 4, .normalised = false});
  read_shared_expert(r, c, 5632);
  r.refuse_unless("use_sliding_window", false);
  return c;
}

}  // namespace

Family qwen2_moe_family() {
  return decoder_family("qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe);
}

}  // namespace fettle
