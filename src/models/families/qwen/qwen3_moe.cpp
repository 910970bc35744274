// Qwen 3 with a mixture of experts; some layers may have a dense MLP. Source: transformers/models/qwen3_moe.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_qwen3_moe(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.attention_bias = r.flag("attention_bias", false);
  c.qk_norm = true;
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size", 768);
  c.routing.normalised = r.flag("norm_topk_prob", false);
  c.experts = {.router = "mlp.gate",
               .gate = "mlp.experts.{}.gate_proj",
               .up = "mlp.experts.{}.up_proj",
               .down = "mlp.experts.{}.down_proj"};
  r.read_experts(c, r.integer("num_experts", r.integer("num_local_experts", 128)), 8);
  r.read_sparse_layers(c);
  r.refuse_unless("use_sliding_window", false);
  return c;
}

}  // namespace

Family qwen3_moe_family() {
  return decoder_family("qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe);
}

}  // namespace fettle
