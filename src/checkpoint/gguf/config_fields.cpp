#include "checkpoint/gguf/config_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/gguf/config_rope.h"
#include "checkpoint/gguf/families.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

bool has_bias(const GgufFields& fields, const std::string& module) {
  return fields.tensor("blk.0." + module + ".bias") != nullptr;
}

// Returns whether the file has a tensor whose name ends with `ending`.
bool has_tensor(const GgufFields& fields, const std::string& ending) {
  return std::ranges::any_of(fields.header().tensors,
                             [&](const GgufTensor& tensor) { return tensor.name.ends_with(ending); });
}

int64_t head_dim_of(const GgufFields& fields) {
  const int64_t heads = fields.of_layers(".attention.head_count");
  if (heads == 0)
    throw UserError("{}: '{}.attention.head_count' is 0; use the model's safetensors files", fields.file(),
                    fields.architecture());
  return fields.integer(".attention.key_length", fields.integer(".embedding_length") / heads);
}

void set_partial_rotary(const GgufFields& fields, Json& config) {
  const int64_t head = head_dim_of(fields), rotary = fields.integer(".rope.dimension_count", head);
  if (head > 0 && rotary != head)
    config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head);
}

// If the file lists the layers that have a window, sets layer_types. Otherwise sets sliding_window_pattern to the
// file's number, or to `pattern` if the file has no number. If sliding_window_pattern is n, every n-th layer has no
// window.
void set_windows(const GgufFields& fields, Json& config, int64_t pattern) {
  if (fields.has(".attention.sliding_window")) config["sliding_window"] = fields.integer(".attention.sliding_window");
  const Json* listed = fields.find(".attention.sliding_window_pattern");
  if (listed == nullptr || !listed->is_array()) {
    config["sliding_window_pattern"] = fields.integer(".attention.sliding_window_pattern", pattern);
    return;
  }
  Json types = Json::array();
  for (const Json& slides : *listed)
    types.push_back(slides == true || slides == 1 ? "sliding_attention" : "full_attention");
  config["layer_types"] = types;
}

// Returns layer_types. A layer with 0 key heads has the type `other`, and any other layer has "full_attention".
Json layer_types(const GgufFields& fields, const char* other) {
  Json types = Json::array();
  for (int64_t layer = 0; layer < fields.layers(); ++layer) types.push_back("full_attention");
  for (const int64_t layer : fields.zero_layers(".attention.head_count_kv"))
    if (static_cast<size_t>(layer) < types.size()) types[static_cast<size_t>(layer)] = other;
  return types;
}

void set_mamba2(const GgufFields& fields, Json& config) {
  const int64_t heads = fields.integer(".ssm.time_step_rank");
  config["mamba_n_heads"] = heads;
  config["mamba_d_head"] = fields.integer(".ssm.inner_size") / std::max<int64_t>(1, heads);
  config["mamba_n_groups"] = fields.integer(".ssm.group_count");
  config["mamba_d_state"] = fields.integer(".ssm.state_size");
  config["mamba_d_conv"] = fields.integer(".ssm.conv_kernel");
  config["mamba_conv_bias"] = has_tensor(fields, ".ssm_conv1d.bias");
}

// Sets the fields of Qwen's linear attention. In llama.cpp, a value head has the size of a key head.
void set_delta_net(const GgufFields& fields, Json& config) {
  config["linear_num_key_heads"] = fields.integer(".ssm.group_count");
  config["linear_num_value_heads"] = fields.integer(".ssm.time_step_rank");
  config["linear_key_head_dim"] = config["linear_value_head_dim"] = fields.integer(".ssm.state_size");
  config["linear_conv_kernel_dim"] = fields.integer(".ssm.conv_kernel");
  config["full_attention_interval"] = fields.integer(".full_attention_interval", 4);
  Json types = Json::array();
  if (const Json* listed = fields.find(".attention.recurrent_layers"); listed != nullptr && listed->is_array())
    for (const Json& linear : *listed)
      if (static_cast<int64_t>(types.size()) < fields.layers())
        types.push_back(linear == true || linear == 1 ? "linear_attention" : "full_attention");
  if (!types.empty()) config["layer_types"] = types;
  config["partial_rotary_factor"] = 1.0;
  set_partial_rotary(fields, config);
}

// Sets the fields of a model whose first layers are dense and whose other layers have experts and a shared expert
// (GLM-4.5, DeepSeek).
void set_routed_experts(const GgufFields& fields, Json& config) {
  config["n_routed_experts"] = fields.integer(".expert_count");
  config["num_experts_per_tok"] = fields.integer(".expert_used_count");
  config["moe_intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["n_shared_experts"] = fields.integer(".expert_shared_count");
  config["first_k_dense_replace"] = fields.integer(".leading_dense_block_count", 0);
  config["norm_topk_prob"] = fields.flag(".expert_weights_norm", false);
  config["routed_scaling_factor"] = fields.number(".expert_weights_scale", 1);
  config["n_group"] = std::max<int64_t>(1, fields.integer(".expert_group_count", 1));
  config["topk_group"] = std::max<int64_t>(1, fields.integer(".expert_group_used_count", 1));
}

// Renames common fields to the names in the configs of GPT-2 and GPTBigCode, for example hidden_size to n_embd, and
// removes fields that these configs lack.
void rename_for_gpt(const GgufFields& fields, Json& config) {
  for (const auto& [from, to] : {std::pair{"hidden_size", "n_embd"},
                                 {"intermediate_size", "n_inner"},
                                 {"num_hidden_layers", "n_layer"},
                                 {"num_attention_heads", "n_head"},
                                 {"max_position_embeddings", "n_positions"}}) {
    config[to] = config[from];
    config.erase(from);
  }
  for (const char* other : {"num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps", "hidden_act"})
    config.erase(other);
  config["layer_norm_epsilon"] = fields.number(".attention.layer_norm_epsilon", 1e-5);
  // Reads the MLP's size from a tensor, because llama.cpp's conversion always writes 4 * n_embd as this size.
  if (const GgufTensor* up = fields.tensor("blk.0.ffn_up.weight")) config["n_inner"] = up->dims.front();
}

// Sets query_pre_attn_scalar of Gemma 2 and 3. It is the size of a head; in the 27B models, it is hidden_size / number
// of heads. A model with `layers_of_27b` layers counts as a 27B model.
void set_query_scale(const GgufFields& fields, Json& config, int64_t layers_of_27b) {
  const int64_t heads = fields.integer(".attention.head_count");
  const bool large = fields.integer(".block_count") == layers_of_27b;
  config["query_pre_attn_scalar"] = large ? fields.integer(".embedding_length") / heads : head_dim_of(fields);
}

// Returns the number of the first layer with a window if `windowed` is true, and of the first layer without a window
// otherwise. Returns 0 when there is no such layer. In Gemma 4, these two kinds of layers have heads of different
// sizes.
int64_t first_layer(const GgufFields& fields, bool windowed) {
  const Json* listed = fields.find(".attention.sliding_window_pattern");
  for (size_t layer = 0; listed != nullptr && listed->is_array() && layer < listed->size(); ++layer)
    if (((*listed)[layer] == true || (*listed)[layer] == 1) == windowed) return static_cast<int64_t>(layer);
  return 0;
}

// Returns the value of `key` that all layers share. Ignores layers in which it is 0 (GgufFields::of_layers). For Gemma
// 4, returns the value of the first layer with a window.
int64_t of_layers(const GgufFields& fields, const char* key) {
  return fields.has(".attention.key_length_swa") ? fields.in_layer(key, first_layer(fields, true))
                                                 : fields.of_layers(key);
}

std::string dtype_of(const GgufFields& fields) {
  std::string_view found = "F32";
  for (const GgufTensor& tensor : fields.header().tensors) {
    if (tensor.dims.size() < 2) continue;
    if (!tensor.type->is_float()) return "bfloat16";
    if (tensor.type->name != "F32") found = tensor.type->name;
  }
  return found == "F32" ? "float32" : found == "F16" ? "float16" : "bfloat16";
}

}  // namespace

Json gguf_config(const GgufFamily& family, const GgufFields& fields) {
  const GgufTensor* table = fields.tensor("token_embd.weight");
  if (table == nullptr)
    throw UserError("{}: it has no tensor 'token_embd.weight'; use the model's safetensors files", fields.file());
  const bool experts_only = !fields.has(".feed_forward_length") && fields.has(".expert_feed_forward_length");
  Json config{
      {"architectures", {family.class_name}},
      {"model_type", family.model_type},
      {"vocab_size", table->dims.front()},
      {"hidden_size", fields.integer(".embedding_length")},
      {"intermediate_size", experts_only ? 0 : of_layers(fields, ".feed_forward_length")},
      {"num_hidden_layers", fields.layers()},
      {"num_attention_heads", fields.of_layers(".attention.head_count")},
      {"num_key_value_heads", of_layers(fields, fields.has(".attention.head_count_kv") ? ".attention.head_count_kv"
                                                                                       : ".attention.head_count")},
      {"head_dim", head_dim_of(fields)},
      {"max_position_embeddings", fields.integer(".context_length")},
      {"hidden_act", "silu"},
      {"rope_theta", fields.number(".rope.freq_base", 10000)},
      {"tie_word_embeddings", fields.tensor("output.weight") == nullptr},
      {"torch_dtype", dtype_of(fields)},
      {"use_cache", true}};
  if (experts_only) config.erase("intermediate_size");
  if (fields.has(".attention.layer_norm_rms_epsilon"))
    config["rms_norm_eps"] = fields.number(".attention.layer_norm_rms_epsilon", 0);
  if (const Json scaling = rope_scaling(fields); !scaling.is_null()) config["rope_scaling"] = scaling;
  for (const auto& [key, field] :
       {std::pair{"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"padding", "pad_token_id"}})
    if (const auto id = fields.id(std::string("tokenizer.ggml.") + key + "_token_id")) config[field] = *id;
  family.config(fields, config);
  return config;
}

void no_fields(const GgufFields&, Json&) {}

void bias_fields(const GgufFields& fields, Json& config) {
  config["attention_bias"] = has_bias(fields, "attn_q");
}

void llama_fields(const GgufFields& fields, Json& config) {
  bias_fields(fields, config);
  config["mlp_bias"] = has_bias(fields, "ffn_up");
  if (const std::vector<double> factors = fields.floats("rope_freqs.weight"); !factors.empty())
    config["rope_scaling"] = llama3_rope(fields, config, factors);
}

void mistral_fields(const GgufFields& fields, Json& config) {
  llama_fields(fields, config);
  config["sliding_window"] = nullptr;  // without this key, Transformers has a window of 4096
}

void mixtral_fields(const GgufFields& fields, Json& config) {
  config["num_local_experts"] = fields.integer(".expert_count");
  config["num_experts_per_tok"] = fields.integer(".expert_used_count");
}

void ministral3_fields(const GgufFields& fields, Json& config) {
  Json rope = config.value("rope_scaling", Json::object());
  rope["rope_theta"] = config["rope_theta"];
  rope["llama_4_scaling_beta"] = fields.number(".attention.temperature_scale", 0);
  rope["mscale"] = 1.0;
  rope["mscale_all_dim"] = fields.number(".rope.scaling.yarn_log_multiplier", 1);
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = rope;
}

void qwen3_moe_fields(const GgufFields& fields, Json& config) {
  bias_fields(fields, config);
  config["num_experts"] = fields.integer(".expert_count");
  config["num_experts_per_tok"] = fields.integer(".expert_used_count");
  config["moe_intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["norm_topk_prob"] = fields.flag(".expert_weights_norm", true);
}

// norm_topk_prob is false because llama.cpp does not divide the weights of a token's experts by their sum.
void qwen2_moe_fields(const GgufFields& fields, Json& config) {
  qwen3_moe_fields(fields, config);
  config["qkv_bias"] = has_bias(fields, "attn_q");
  config["norm_topk_prob"] = false;
  config["shared_expert_intermediate_size"] =
      fields.integer(".expert_shared_feed_forward_length", fields.integer(".feed_forward_length", 0));
}

void qwen3_5_fields(const GgufFields& fields, Json& config) {
  set_delta_net(fields, config);
  config["attention_bias"] = has_tensor(fields, ".attn_q.bias");
}

// norm_topk_prob is true because llama.cpp divides the weights of a token's experts by their sum.
void qwen3_next_fields(const GgufFields& fields, Json& config) {
  qwen2_moe_fields(fields, config);
  config["norm_topk_prob"] = true;
  qwen3_5_fields(fields, config);
}

void gemma_fields(const GgufFields&, Json& config) {
  config["hidden_act"] = config["hidden_activation"] = "gelu_pytorch_tanh";
}

void gemma2_fields(const GgufFields& fields, Json& config) {
  gemma_fields(fields, config);
  config["attn_logit_softcapping"] = fields.number(".attn_logit_softcapping", 50);
  config["final_logit_softcapping"] = fields.number(".final_logit_softcapping", 30);
  set_windows(fields, config, 2);
  if (!config.contains("sliding_window")) config["sliding_window"] = 4096;
  set_query_scale(fields, config, 46);
}

void gemma3_fields(const GgufFields& fields, Json& config) {
  gemma_fields(fields, config);
  config["rope_theta"] = fields.number(".rope.freq_base", 1e6);
  config["rope_local_base_freq"] = fields.number(".rope.freq_base_swa", 1e4);
  if (fields.has(".final_logit_softcapping"))
    config["final_logit_softcapping"] = fields.number(".final_logit_softcapping", 0);
  set_windows(fields, config, 6);
  set_query_scale(fields, config, 62);
}

void gemma4_fields(const GgufFields& fields, Json& config) {
  const int64_t full = first_layer(fields, false), last = std::max<int64_t>(1, fields.layers()) - 1;
  gemma_fields(fields, config);
  config["attention_bias"] = has_bias(fields, "attn_q");
  config["head_dim"] = fields.integer(".attention.key_length_swa");
  config["global_head_dim"] = fields.integer(".attention.key_length");
  config["num_global_key_value_heads"] = fields.in_layer(".attention.head_count_kv", full);
  config["attention_k_eq_v"] = fields.tensor("blk." + std::to_string(full) + ".attn_v.weight") == nullptr;
  config["num_kv_shared_layers"] = fields.integer(".attention.shared_kv_layers", 0);
  config["use_double_wide_mlp"] =
      fields.in_layer(".feed_forward_length", 0) != fields.in_layer(".feed_forward_length", last);
  config["hidden_size_per_layer_input"] = fields.integer(".embedding_length_per_layer_input", 0);
  if (const GgufTensor* table = fields.tensor("per_layer_token_embd.weight"))
    config["vocab_size_per_layer_input"] = table->dims.front();
  config["final_logit_softcapping"] = fields.number(".final_logit_softcapping", 0);
  set_windows(fields, config, 6);
  // The dims of a head that are not rotated have a factor of 1e30.
  double rotated = 0;
  const std::vector<double> factors = fields.floats("rope_freqs.weight");
  for (const double factor : factors) rotated += factor == 1 ? 1 : 0;
  const double share = factors.empty() ? 1 : rotated / static_cast<double>(factors.size());
  config["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"}, {"rope_theta", config["rope_theta"]}, {"partial_rotary_factor", share}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", fields.number(".rope.freq_base_swa", 10000)}}}};
  config.erase("rope_theta");
  config["enable_moe_block"] = fields.integer(".expert_count", 0) > 0;
  if (!config["enable_moe_block"].get<bool>()) return;
  config["num_experts"] = fields.integer(".expert_count");
  config["top_k_experts"] = fields.integer(".expert_used_count");
  config["moe_intermediate_size"] = fields.integer(".expert_feed_forward_length");
}

void phi2_fields(const GgufFields& fields, Json& config) {
  if (fields.tensor("blk.0.attn_qkv.weight") != nullptr)
    throw UserError(
        "{}: the file stores q, k and v in one tensor (attn_qkv), as older converters did. Fettle does not read such "
        "phi2 files; use a file that a newer llama.cpp wrote",
        fields.file());
  config["hidden_act"] = "gelu_new";
  config["layer_norm_eps"] = fields.number(".attention.layer_norm_epsilon", 1e-5);
  const int64_t head = std::max<int64_t>(1, head_dim_of(fields));
  config["partial_rotary_factor"] =
      static_cast<double>(fields.integer(".rope.dimension_count", head)) / static_cast<double>(head);
  // llama.cpp's converter always writes 4 * hidden_size as the MLP's size, so the size comes from a tensor.
  if (const GgufTensor* up = fields.tensor("blk.0.ffn_up.bias")) config["intermediate_size"] = up->dims[0];
}

void phi3_fields(const GgufFields& fields, Json& config) {
  set_partial_rotary(fields, config);
  const int64_t original = fields.integer(".rope.scaling.original_context_length", fields.integer(".context_length"));
  config["original_max_position_embeddings"] = original;
  const std::vector<double> longer = fields.floats("rope_factors_long.weight");
  if (!longer.empty())
    config["rope_scaling"] = {{"type", "longrope"},
                              {"rope_type", "longrope"},
                              {"long_factor", longer},
                              {"short_factor", fields.floats("rope_factors_short.weight")}};
  if (!longer.empty() && fields.has(".rope.scaling.attn_factor"))
    config["rope_scaling"]["attention_factor"] = fields.number(".rope.scaling.attn_factor", 1);
  if (const int64_t window = fields.integer(".attention.sliding_window", 0); window > 0)
    config["sliding_window"] = window;
}

void starcoder2_fields(const GgufFields& fields, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["norm_epsilon"] = fields.number(".attention.layer_norm_epsilon", 1e-5);
  config["use_bias"] = has_bias(fields, "attn_q");
}

void gpt_bigcode_fields(const GgufFields& fields, Json& config) {
  if (config["num_key_value_heads"] != 1)
    throw UserError("{}: '{}.attention.head_count_kv' is {}, wanted 1; use the model's safetensors files",
                    fields.file(), fields.architecture(), config["num_key_value_heads"].dump());
  rename_for_gpt(fields, config);
  config["multi_query"] = true;
  config["activation_function"] = "gelu_pytorch_tanh";
}

void gpt2_fields(const GgufFields& fields, Json& config) {
  rename_for_gpt(fields, config);
  config["activation_function"] = "gelu_new";
  config["n_ctx"] = config["n_positions"];
}

void gpt_neox_fields(const GgufFields& fields, Json& config) {
  config["hidden_act"] = "gelu";
  config["layer_norm_eps"] = fields.number(".attention.layer_norm_epsilon", 1e-5);
  config["use_parallel_residual"] = fields.flag(".use_parallel_residual", true);
  config["attention_bias"] = has_bias(fields, "attn_qkv");
  const int64_t rotary = fields.integer(".rope.dimension_count", head_dim_of(fields));
  config["rotary_pct"] = static_cast<double>(rotary) / static_cast<double>(std::max<int64_t>(1, head_dim_of(fields)));
  config["rotary_emb_base"] = config["rope_theta"];
}

void olmo3_fields(const GgufFields& fields, Json& config) {
  bias_fields(fields, config);
  set_windows(fields, config, 4);
  // Only the layers without a window have scaled positions.
  Json full = config.value("rope_scaling", Json{{"rope_type", "default"}});
  full["rope_theta"] = config["rope_theta"];
  const double local = fields.number(".rope.freq_base_swa", config["rope_theta"].get<double>());
  config["rope_parameters"] = {{"full_attention", full},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  config.erase("rope_scaling");
  config.erase("rope_theta");
}

void smollm3_fields(const GgufFields& fields, Json& config) {
  bias_fields(fields, config);
  config["mlp_bias"] = has_bias(fields, "ffn_up");
  config["no_rope_layer_interval"] = 4;
}

void granite_fields(const GgufFields& fields, Json& config) {
  llama_fields(fields, config);
  config["attention_multiplier"] = fields.number(".attention.scale", 1);
  config["embedding_multiplier"] = fields.number(".embedding_scale", 1);
  config["residual_multiplier"] = fields.number(".residual_scale", 1);
  config["logits_scaling"] = fields.number(".logit_scale", 1);
}

void seed_oss_fields(const GgufFields& fields, Json& config) {
  bias_fields(fields, config);
  config["attention_out_bias"] = has_bias(fields, "attn_output");
  config["mlp_bias"] = has_bias(fields, "ffn_up");
}

void ernie4_5_fields(const GgufFields& fields, Json& config) {
  config["use_bias"] = has_bias(fields, "attn_q");
}

void glm_fields(const GgufFields& fields, Json& config) {
  if (!fields.has(".attention.key_length")) {
    const GgufTensor* query = fields.tensor("blk.0.attn_q.weight");
    if (query != nullptr) config["head_dim"] = query->dims.front() / fields.integer(".attention.head_count");
  }
  const auto head = config["head_dim"].get<int64_t>();
  const int64_t rotary = fields.integer(".rope.dimension_count", head / 2);
  config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(std::max<int64_t>(1, head));
  config["attention_bias"] = has_bias(fields, "attn_q");
}

void lfm2_fields(const GgufFields& fields, Json& config) {
  config["norm_eps"] = config["rms_norm_eps"];
  config["block_auto_adjust_ff_dim"] = false;
  config["conv_L_cache"] = fields.integer(".shortconv.l_cache");
  config["layer_types"] = layer_types(fields, "conv");
}

// llama.cpp always computes this router with sigmoids, a correction bias and no factor on the weights. These are the
// defaults of config.json, too.
void lfm2_moe_fields(const GgufFields& fields, Json& config) {
  lfm2_fields(fields, config);
  config["num_experts"] = fields.integer(".expert_count");
  config["num_experts_per_tok"] = fields.integer(".expert_used_count");
  config["moe_intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["num_dense_layers"] = fields.integer(".leading_dense_block_count", 0);
}

void minimax_m2_fields(const GgufFields& fields, Json& config) {
  mixtral_fields(fields, config);
  config["intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["rotary_dim"] = fields.integer(".rope.dimension_count", head_dim_of(fields));
}

void deepseek_fields(const GgufFields& fields, Json& config) {
  set_routed_experts(fields, config);
  const int64_t rotary = fields.integer(".rope.dimension_count");
  config["head_dim"] = config["qk_rope_head_dim"] = rotary;
  config["qk_nope_head_dim"] = fields.integer(".attention.key_length_mla") - rotary;
  config["v_head_dim"] = fields.integer(".attention.value_length_mla");
  config["kv_lora_rank"] = fields.integer(".attention.kv_lora_rank");
  config["q_lora_rank"] = nullptr;
  if (fields.has(".attention.q_lora_rank")) config["q_lora_rank"] = fields.integer(".attention.q_lora_rank");
  config["num_key_value_heads"] = config["num_attention_heads"];
  if (config["model_type"] == "deepseek_v2")
    config["topk_method"] = config["n_group"] == 1 ? "greedy" : "group_limited_greedy";
  // llama.cpp's converter writes a tenth of mscale_all_dim.
  if (const double tenth = fields.number(".rope.scaling.yarn_log_multiplier", 0);
      tenth > 0 && config.contains("rope_scaling"))
    config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"] = 10 * tenth;
}

void glm4_moe_fields(const GgufFields& fields, Json& config) {
  set_routed_experts(fields, config);
  config["partial_rotary_factor"] = 1.0;
  set_partial_rotary(fields, config);
  config["attention_bias"] = has_bias(fields, "attn_q");
  config["use_qk_norm"] = has_tensor(fields, ".attn_q_norm.weight");
}

void nemotron_h_fields(const GgufFields& fields, Json& config) {
  const bool experts = fields.integer(".expert_count", 0) > 0;
  Json types = layer_types(fields, experts ? "moe" : "mlp");
  for (const int64_t layer : fields.zero_layers(".feed_forward_length"))
    if (static_cast<size_t>(layer) < types.size() && types[static_cast<size_t>(layer)] != "full_attention")
      types[static_cast<size_t>(layer)] = "linear_attention";
  config["layers_block_type"] = types;
  if (config["intermediate_size"] == 0) config.erase("intermediate_size");
  config["layer_norm_epsilon"] =
      fields.number(".attention.layer_norm_rms_epsilon", fields.number(".attention.layer_norm_epsilon", 1e-5));
  config["attention_bias"] = has_tensor(fields, ".attn_q.bias");
  config["mlp_bias"] = has_tensor(fields, ".ffn_up.bias");
  const int64_t heads = fields.integer(".ssm.time_step_rank");
  config["mamba_num_heads"] = heads;
  config["mamba_head_dim"] = fields.integer(".ssm.inner_size") / std::max<int64_t>(1, heads);
  config["n_groups"] = fields.integer(".ssm.group_count");
  config["ssm_state_size"] = fields.integer(".ssm.state_size");
  config["conv_kernel"] = fields.integer(".ssm.conv_kernel");
  config["use_conv_bias"] = has_tensor(fields, ".ssm_conv1d.bias");
  if (!experts) return;
  config["n_routed_experts"] = fields.integer(".expert_count");
  config["num_experts_per_tok"] = fields.integer(".expert_used_count");
  config["moe_intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["moe_shared_expert_intermediate_size"] = fields.integer(".expert_shared_feed_forward_length");
  config["norm_topk_prob"] = fields.flag(".expert_weights_norm", false);
  config["routed_scaling_factor"] = fields.number(".expert_weights_scale", 1);
  if (const int64_t latent = fields.integer(".moe_latent_size", 0); latent > 0) config["moe_latent_size"] = latent;
}

// The file's weights are already multiplied by the family's factors. So config.json leaves these factors out, and each
// has its default, 1.
void falcon_h1_fields(const GgufFields& fields, Json& config) {
  set_mamba2(fields, config);
  config["mamba_d_ssm"] = fields.integer(".ssm.inner_size");
  config["mamba_rms_norm"] = has_tensor(fields, ".ssm_norm.weight");
  config["mamba_norm_before_gate"] = false;
}

// A file lacks attention_chunk_size, floor_scale and attn_scale, because llama.cpp has constants for them. Models with
// 128 experts have no norms on q and k.
void llama4_fields(const GgufFields& fields, Json& config) {
  llama_fields(fields, config);
  mixtral_fields(fields, config);
  config["intermediate_size_mlp"] = config["intermediate_size"];
  config["intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["interleave_moe_layer_step"] = fields.integer(".interleave_moe_layer_step");
  const bool chunks = fields.integer(".attention.sliding_window", 1) > 0;
  config["attention_chunk_size"] = chunks ? Json(8192) : Json();
  config["no_rope_layer_interval"] = chunks ? 4 : fields.layers();
  config["attn_temperature_tuning"] = chunks;
  config["floor_scale"] = 8192;
  config["attn_scale"] = 0.1;
  config["use_qk_norm"] = config["num_local_experts"] != 128;
}

void granite4_fields(const GgufFields& fields, Json& config) {
  granite_fields(fields, config);
  const int64_t experts = fields.integer(".expert_count", 0);
  config["attention_bias"] = has_tensor(fields, ".attn_q.bias");
  config["num_local_experts"] = experts;
  config["num_experts_per_tok"] = fields.integer(".expert_used_count", 0);
  config["shared_intermediate_size"] =
      experts > 0 ? Json(fields.integer(".expert_shared_feed_forward_length")) : config["intermediate_size"];
  config["position_embedding_type"] = fields.flag(".rope.scaling.finetuned", true) ? "rope" : "nope";
  config["layer_types"] = layer_types(fields, "mamba");
  set_mamba2(fields, config);
  config["mamba_proj_bias"] = has_tensor(fields, ".ssm_in.bias");
}

// llama.cpp decides by the number of layers whether a model has ALiBi. A config with ALiBi has model_max_length instead
// of max_position_embeddings.
void baichuan_fields(const GgufFields& fields, Json& config) {
  constexpr int64_t kLayersOf13B = 40;
  if (fields.layers() != kLayersOf13B) return;
  config["model_max_length"] = config["max_position_embeddings"];
  config.erase("max_position_embeddings");
}

// llama.cpp always rounds the two ends of the range over which YaRN blends frequencies. The published models do not
// round them, so `truncate` is false. A config without rope settings is refused, but in a GGUF file it means rope that
// is not scaled.
void gpt_oss_fields(const GgufFields& fields, Json& config) {
  mixtral_fields(fields, config);
  config["intermediate_size"] = fields.integer(".expert_feed_forward_length");
  config["attention_bias"] = has_bias(fields, "attn_q");
  set_windows(fields, config, 2);
  if (config.contains("rope_scaling"))
    config["rope_scaling"]["truncate"] = false;
  else
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
}

void cohere2_fields(const GgufFields& fields, Json& config) {
  config["layer_norm_eps"] = fields.number(".attention.layer_norm_epsilon", 1e-5);
  config["logit_scale"] = fields.number(".logit_scale", 0.0625);
  config["attention_bias"] = has_bias(fields, "attn_q");
  set_windows(fields, config, 4);
}

}  // namespace fettle
