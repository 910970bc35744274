// Qwen 2 with a mixture of experts and a shared, gated expert for every token. Some layers may have a dense MLP.
// Source: transformers/models/qwen2_moe.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_qwen2_moe(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("qkv_bias", true);
  c.output_bias = false;
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size", 1408);
  c.routing.normalised = r.flag("norm_topk_prob", false);
  c.experts = {.router = "mlp.gate",
               .gate = "mlp.experts.{}.gate_proj",
               .up = "mlp.experts.{}.up_proj",
               .down = "mlp.experts.{}.down_proj"};
  c.shared_expert = {.module = "mlp.shared_expert",
                     .size = r.integer("shared_expert_intermediate_size", 5632),
                     .gate = "mlp.shared_expert_gate"};
  r.read_experts(c, r.integer("num_experts", r.integer("num_local_experts", 60)), 4);
  r.read_sparse_layers(c);
  r.refuse_unless("use_sliding_window", false);
  return c;
}

}  // namespace

Family qwen2_moe_family() {
  return decoder_family("qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe);
}

}  // namespace fettle
