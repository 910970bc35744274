// MiniMax M2: one norm over all heads of q and one over all heads of k, rope on a part of a head's dims, a router that
// uses sigmoids and a correction of the scores. Source: transformers/models/minimax_m2.
#include <nlohmann/json.hpp>

#include "graph/ops.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_minimax_m2(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  const double rotated = r.number("rotary_dim", static_cast<double>(c.head_dim));
  c.rope = r.rope(5000000, r.number("partial_rotary_factor", rotated / static_cast<double>(c.head_dim)));
  c.mlp = Mlp::kExperts;
  c.experts = {.router = "block_sparse_moe.gate",
               .gate = "block_sparse_moe.experts.{}.w1",
               .up = "block_sparse_moe.experts.{}.w3",
               .down = "block_sparse_moe.experts.{}.w2"};
  c.routing = {.sigmoid = true, .correction = "block_sparse_moe.e_score_correction_bias"};
  r.read_experts(c, r.integer("num_local_experts", 256), 8);
  // Transformers computes this loss from a softmax of the router's logits without the correction. Fettle's would be
  // another loss: the model chooses its experts with the correction, and its scores are sigmoids.
  c.has_balancing_loss = false;
  r.refuse_unless("scoring_func", "sigmoid");
  r.refuse_unless("qk_norm_type", "per_layer");
  r.refuse_unless("use_qk_norm", true);
  r.refuse_unless("use_routing_bias", true);
  return c;
}

void add_minimax_layer(ParamList& list, const ModelConfig& c) {
  add_pre_norm_layer(list, c);
  add_norm(list, c, "self_attn.q_norm", c.num_attention_heads * c.head_dim);
  add_norm(list, c, "self_attn.k_norm", c.num_key_value_heads * c.head_dim);
}

Tensor minimax_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  Heads heads = d.project(layer, d.norm(layer, "input_layernorm", x));
  heads.q_BTNH = d.norm_of_all_heads(layer, "self_attn.q_norm", heads.q_BTNH);
  heads.k_BTKH = d.norm_of_all_heads(layer, "self_attn.k_norm", heads.k_BTKH);
  const Tensor y = x + d.attend(layer, d.rotate(layer, heads), cache);
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

}  // namespace

Family minimax_m2_family() {
  return without_classifier(
      decoder_family("minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, {add_minimax_layer, minimax_layer}));
}

}  // namespace fettle
