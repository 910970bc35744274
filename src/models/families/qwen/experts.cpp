#include "models/families/qwen/experts.h"

namespace fettle {

void read_qwen_experts(const ConfigReader& r, ModelConfig& c, const ExpertNames& names, const QwenExperts& usual) {
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size", usual.size);
  c.routing.normalised = r.flag("norm_topk_prob", usual.normalised);
  c.experts = names;
  r.read_experts(c, r.integer("num_experts", r.integer("num_local_experts", usual.count)), usual.per_token);
  r.read_sparse_layers(c);
}

void read_shared_expert(const ConfigReader& r, ModelConfig& c, int64_t usual_size) {
  c.shared_expert = {.module = "mlp.shared_expert",
                     .size = r.integer("shared_expert_intermediate_size", usual_size),
                     .gate = "mlp.shared_expert_gate"};
}

}  // namespace fettle
