// DeepSeek V2 and V3 (R1, V3.1, Kimi K2, Moonlight): attention whose keys and values come from one small vector per
// token, dense layers before those with experts. V3's router uses sigmoids, groups of experts and a correction of the
// scores. GLM-4.5 has the same experts with usual attention; GLM-4.7 Flash has them with latent attention. Sources:
// transformers/models/deepseek_v2, deepseek_v3, glm4_moe, glm4_moe_lite.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "models/decoder.h"
#include "models/families/families.h"

namespace fettle {
namespace {

// The config defaults that differ between the families in this file.
struct Experts {
  int64_t count, per_token, dense, shared = 1;
  double scale = 1;
  int64_t groups = 1, top_groups = 1;
};

void read_routed_experts(const ConfigReader& r, ModelConfig& c, const Experts& usual) {
  c.mlp = Mlp::kExperts;
  c.expert_size = r.integer("moe_intermediate_size");
  c.experts = ExpertNames::one_by_one();
  r.read_experts(c, r.integer("n_routed_experts", r.integer("num_local_experts", usual.count)), usual.per_token);
  c.has_balancing_loss = false;  // Transformers computes no balancing loss
  c.routing = {.sigmoid = true,
               .in_f32 = true,
               .normalised = r.flag("norm_topk_prob", true),
               .correction = "mlp.gate.e_score_correction_bias",
               .groups = r.integer("n_group", usual.groups),
               .top_groups = r.integer("topk_group", usual.top_groups),
               .scale = r.number("routed_scaling_factor", usual.scale)};
  c.shared_expert = {.module = "mlp.shared_experts",
                     .size = c.expert_size * r.integer("n_shared_experts", usual.shared)};
  const int64_t dense = r.has("first_k_dense_replace") ? r.count("first_k_dense_replace") : usual.dense;
  c.expert_layers = all_layers(c.num_hidden_layers).within(dense, c.num_hidden_layers);
  if (const std::vector<std::string> types = r.texts_by_layer("mlp_layer_types", c.num_hidden_layers); !types.empty()) {
    c.expert_layers->numbers.clear();
    for (size_t layer = 0; layer < types.size(); ++layer) {
      if (types[layer] == "sparse") c.expert_layers->numbers.push_back(static_cast<int64_t>(layer));
      if (types[layer] != "sparse" && types[layer] != "dense")
        throw UserError("{}: 'mlp_layer_types' contains '{}'; sparse and dense are implemented", r.file(),
                        types[layer]);
    }
  }
  c.expert_layers->all = c.expert_layers->count();
  if (c.expert_layers->count() == 0)
    throw UserError("{}: {} leaves no layer with experts", r.file(),
                    r.has("mlp_layer_types") ? "mlp_layer_types" : "first_k_dense_replace");
  if (c.expert_layers->count() == c.num_hidden_layers) c.expert_layers.reset();
  r.refuse_unless("moe_layer_freq", 1);
}

ModelConfig read_glm4_moe(const ConfigReader& r) {
  ModelConfig c = read_decoder_config(r);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  c.rope = r.rope(10000, 0.5);
  c.attention_bias = r.flag("attention_bias", false);
  c.output_bias = false;
  c.qk_norm = r.flag("use_qk_norm", false);
  read_routed_experts(r, c, {.count = 128, .per_token = 8, .dense = 1});
  return c;
}

ModelConfig read_latent_attention(const ConfigReader& r, int64_t usual_query_rank = 1536) {
  ModelConfig c = read_decoder_config(r);
  // null: queries come from the hidden state
  const int64_t query_rank =
      r.given("q_lora_rank") && !r.has("q_lora_rank") ? 0 : r.integer("q_lora_rank", usual_query_rank);
  const LatentAttention latent{.query_rank = query_rank,
                               .key_rank = r.integer("kv_lora_rank", 512),
                               .plain_dim = r.integer("qk_nope_head_dim", 128),
                               .rotary_dim = r.integer("qk_rope_head_dim", 64),
                               .value_dim = r.integer("v_head_dim", 128)};
  c.latent = latent;
  c.head_dim = latent.rotary_dim;
  c.num_key_value_heads = c.num_attention_heads;
  c.rope.interleaved = r.flag("rope_interleave", true);
  c.attention_bias = r.flag("attention_bias", false);
  c.attention_scale = 1 / std::sqrt(static_cast<double>(latent.plain_dim + latent.rotary_dim));
  if (c.rope.rope_type == "yarn" && c.rope.mscale_all_dim != 0 && c.rope.factor > 1) {
    const double m = 0.1 * c.rope.mscale_all_dim * std::log(c.rope.factor) + 1;
    c.attention_scale *= m * m;
  }
  return c;
}

ModelConfig read_deepseek_v3(const ConfigReader& r) {
  ModelConfig c = read_latent_attention(r);
  read_routed_experts(r, c, {.count = 256, .per_token = 8, .dense = 3, .scale = 2.5, .groups = 8, .top_groups = 4});
  r.refuse_unless("scoring_func", "sigmoid");
  r.refuse_unless("topk_method", "noaux_tc");
  return c;
}

ModelConfig read_glm4_moe_lite(const ConfigReader& r) {
  ModelConfig c = read_latent_attention(r, 768);
  c.norm_eps = r.number("rms_norm_eps", 1e-5);
  read_routed_experts(r, c, {.count = 64, .per_token = 4, .dense = 1, .scale = 1.8});
  return c;
}

ModelConfig read_deepseek_v2(const ConfigReader& r) {
  ModelConfig c = read_latent_attention(r);
  c.rope.interleaved = true;
  read_routed_experts(r, c, {.count = 64, .per_token = 6, .dense = 0, .shared = 2});
  const bool grouped = r.text("topk_method", "greedy") == "group_limited_greedy";
  c.routing = {.in_f32 = true,
               .normalised = false,
               .groups = grouped ? c.routing.groups : 1,
               .top_groups = grouped ? c.routing.top_groups : 1,
               .best_two = false,
               .scale = c.routing.scale};
  if (!grouped) r.refuse_unless("topk_method", "greedy");
  r.refuse_unless("scoring_func", "softmax");
  r.refuse_unless("norm_topk_prob", false);
  return c;
}

void add_latent_attention(ParamList& list, const ModelConfig& c) {
  const LatentAttention& a = *c.latent;
  const int64_t n = c.num_attention_heads;
  const SizedAxis d{c.hidden_size, "embed"}, q{n * (a.plain_dim + a.rotary_dim), "heads"}, latent{a.key_rank, ""};
  if (a.query_rank == 0) {
    list.linear("self_attn.q_proj", q, d, {.head_rows = a.plain_dim + a.rotary_dim});
  } else {
    list.linear("self_attn.q_a_proj", {a.query_rank, ""}, d, {.bias = c.attention_bias});
    list.norm("self_attn.q_a_layernorm", a.query_rank, Init::kOnes, false);
    list.linear("self_attn.q_b_proj", q, {a.query_rank, ""});
  }
  list.linear("self_attn.kv_a_proj_with_mqa", {a.key_rank + a.rotary_dim, ""}, d, {.bias = c.attention_bias});
  list.norm("self_attn.kv_a_layernorm", a.key_rank, Init::kOnes, false);
  list.linear("self_attn.kv_b_proj", {n * (a.plain_dim + a.value_dim), "heads"}, latent);
  list.linear("self_attn.o_proj", d, {n * a.value_dim, "heads"}, {.bias = c.attention_bias});
}

Tensor latent_attention(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const ModelConfig& c = d.config;
  const LatentAttention& a = *c.latent;
  const int64_t b = x.dim(0), t = x.dim(1), n = c.num_attention_heads;
  auto module = [&](const char* name, const Tensor& in) {
    return linear(d.f, layer, std::string("self_attn.") + name, in);
  };
  auto small_norm = [&](const char* name, const Tensor& in) {
    return rms_norm(in, layer[std::string("self_attn.") + name + ".weight"], 1e-6);
  };
  auto heads = [&](const Tensor& y, int64_t size) {
    return d.f.sharding.constrain(reshape(y, {b, t, n, size}), {"batch", "length", "act_heads", ""});
  };
  const Tensor q_flat =
      a.query_rank == 0 ? module("q_proj", x) : module("q_b_proj", small_norm("q_a_layernorm", module("q_a_proj", x)));
  const Tensor q = heads(q_flat, a.plain_dim + a.rotary_dim);
  const Tensor both = module("kv_a_proj_with_mqa", x);
  const Tensor latent = small_norm("kv_a_layernorm", slice(both, 2, 0, a.key_rank));
  const Tensor kv = heads(module("kv_b_proj", latent), a.plain_dim + a.value_dim);
  // All heads share the rotated dims of the key.
  const Tensor shared = reshape(slice(both, 2, a.key_rank, a.key_rank + a.rotary_dim), {b, t, 1, a.rotary_dim});
  const Heads turned = d.rotate(layer, {slice(q, 3, a.plain_dim, a.plain_dim + a.rotary_dim), shared, {}});
  const Heads all{concatenate({slice(q, 3, 0, a.plain_dim), turned.q_BTNH}, 3),
                  concatenate({slice(kv, 3, 0, a.plain_dim), broadcast_to(turned.k_BTKH, {b, t, n, a.rotary_dim})}, 3),
                  slice(kv, 3, a.plain_dim, a.plain_dim + a.value_dim)};
  return d.attend(layer, all, cache);
}

void add_deepseek_layer(ParamList& list, const ModelConfig& c) {
  add_norm(list, c, "input_layernorm", c.hidden_size);
  add_latent_attention(list, c);
  add_norm(list, c, "post_attention_layernorm", c.hidden_size);
  add_mlp(list, c);
}

Tensor deepseek_layer(const Decoder& d, const Layer& layer, const Tensor& x, LayerCache* cache) {
  const Tensor y = x + latent_attention(d, layer, d.norm(layer, "input_layernorm", x), cache);
  return y + d.mlp(layer, d.norm(layer, "post_attention_layernorm", y));
}

std::vector<CacheArray> latent_cache(const ModelConfig& c) {
  const LayerSet layers = all_layers(c.num_hidden_layers);
  const LogicalAxes axes{"batch", "", "act_heads", ""};
  return {{"keys", layers, {1, -1, c.num_attention_heads, c.latent->plain_dim + c.latent->rotary_dim}, axes},
          {"values", layers, {1, -1, c.num_attention_heads, c.latent->value_dim}, axes}};
}

Family latent_family(const std::string& model_type, const std::string& architecture,
                     ModelConfig (*read)(const ConfigReader&)) {
  Family family = decoder_family(model_type, architecture, read, {add_deepseek_layer, deepseek_layer});
  family.cache = latent_cache;
  return family;
}

}  // namespace

Family glm4_moe_family() {
  return with_mlp_as_experts_in_peft(
      without_classifier(decoder_family("glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe)));
}

Family glm4_moe_lite_family() {
  return with_mlp_as_experts_in_peft(
      without_classifier(latent_family("glm4_moe_lite", "Glm4MoeLiteForCausalLM", read_glm4_moe_lite)));
}

Family deepseek_v2_family() {
  return with_mlp_as_experts_in_peft(latent_family("deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2));
}

Family deepseek_v3_family() {
  return with_mlp_as_experts_in_peft(latent_family("deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3));
}

Family kimi_k2_family() {
  return without_classifier(latent_family("kimi_k2", "DeepseekV3ForCausalLM", read_deepseek_v3));
}

}  // namespace fettle
