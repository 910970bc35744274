// GPT-OSS: biases everywhere, a sink (an extra logit) in each head's softmax, a window on every other layer, yarn, and
// experts with one tensor in which the outputs of gate and up alternate. Source: transformers/models/gpt_oss.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

ModelConfig read_gpt_oss(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.head_dim = r.integer("head_dim", 64);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  r.require_rope();
  c.rope = r.rope(150000);
  c.attention_bias = r.flag("attention_bias", true);
  c.window = r.windows(c.num_hidden_layers, r.given("sliding_window") ? r.integer("sliding_window", 0) : 128,
                       [](int64_t layer) { return layer % 2 == 0; });
  c.mlp = Mlp::kExperts;
  c.experts = {.router = "mlp.router",
               .down = "mlp.experts.down_proj",
               .gate_up = "mlp.experts.gate_up_proj",
               .in_first = true,
               .in_turns = true};
  c.expert_bias = true;
  c.clamped_swiglu = {r.number("swiglu_alpha", 1.702), r.number("swiglu_limit", 7)};
  r.read_experts(c, r.integer("num_local_experts", 128), 4);
  return c;
}

void add_gpt_oss_layer(ParamList& list, const ModelConfig& c) {
  add_pre_norm_layer(list, c);
  list.add("self_attn.sinks", {c.num_attention_heads}, {"norm"}, Role::kCoefficients);
}

}  // namespace

Family gpt_oss_family() {
  return decoder_family("gpt_oss", "GptOssForCausalLM", read_gpt_oss, {add_gpt_oss_layer, pre_norm_layer});
}

}  // namespace fettle
