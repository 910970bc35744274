#include "checkpoint/gguf/write/config_metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "checkpoint/gguf/families.h"
#include "models/blocks/rope.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

// Returns the field of rope_parameters or rope_scaling; null when config.json does not have it.
Json rope_field(const Json& json, const char* field) {
  for (const char* at : {"rope_parameters", "rope_scaling"}) {
    if (!json.contains(at) || !json[at].is_object()) continue;
    const Json& outer = json[at];
    const Json& rope = outer.contains("full_attention") ? outer["full_attention"] : outer;
    return rope.contains(field) ? rope[field] : Json();
  }
  return {};
}

// Returns the factors by which llama3's rule divides the frequencies.
std::vector<float> llama3_factors(const RopeParameters& rope, int64_t head_dim) {
  RopeParameters plain = rope;
  plain.rope_type = "default";
  const int64_t dims = rope.rotary_dim(head_dim);
  const std::vector<double> before = inverse_frequencies(plain, dims, {}), after = inverse_frequencies(rope, dims, {});
  std::vector<float> factors;
  for (size_t i = 0; i < before.size(); ++i) factors.push_back(static_cast<float>(before[i] / after[i]));
  return factors;
}

// Returns the factors of Gemma 4's layers without a window: 1 for the dims that are rotated; for all others a number so
// large that their rotation is negligible.
std::vector<float> proportional_factors(const Gemma4& gemma) {
  const auto half = static_cast<size_t>(gemma.full_head_dim / 2);
  const double share = gemma.full_rope.partial_rotary_factor;
  const auto rotated = static_cast<size_t>(static_cast<double>(gemma.full_head_dim) * share / 2);
  std::vector<float> factors(half, 1e30f);
  std::fill_n(factors.begin(), std::min(rotated, half), 1.0f);
  return factors;
}

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<GgufTable> set_rope(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  const RopeParameters& rope = config.rope;
  metadata.set_number(".rope.freq_base", rope.rope_theta);
  metadata.set_integer(".rope.dimension_count", rope.rotary_dim(config.head_dim));
  if (config.local_rope) metadata.set_number(".rope.freq_base_swa", config.local_rope->rope_theta);
  if (rope.rope_type == "linear" || rope.rope_type == "yarn") {
    metadata.set(".rope.scaling.type", rope.rope_type);
    metadata.set_number(".rope.scaling.factor", rope.factor);
  }
  if (rope.rope_type == "yarn") {
    metadata.set_integer(".rope.scaling.original_context_length", rope.original_max_position_embeddings);
    metadata.set_number(".rope.scaling.yarn_beta_fast", rope.beta_fast);
    metadata.set_number(".rope.scaling.yarn_beta_slow", rope.beta_slow);
    // Without this key, llama.cpp computes the usual factor itself.
    for (const char* field : {"attn_factor", "attention_factor"})
      if (const Json given = rope_field(json, field); given.is_number())
        metadata.set_number(".rope.scaling.yarn_attn_factor", given.get<double>());
  }
  if (config.gemma4) return {{"rope_freqs.weight", proportional_factors(*config.gemma4)}};
  if (rope.rope_type == "llama3") return {{"rope_freqs.weight", llama3_factors(rope, config.head_dim)}};
  if (rope.rope_type == "longrope")
    return {{"rope_factors_long.weight", as_floats(rope.long_factor)},
            {"rope_factors_short.weight", as_floats(rope.short_factor)}};
  return {};
}

// Sets the window. Also lists the layers that have it, unless they follow the usual pattern: every `usual`-th layer has
// no window, all others have one. `usual` is 0 if the family has no such pattern.
void set_window(const ModelConfig& config, int64_t usual, GgufMetadata& metadata) {
  const auto widest = std::ranges::max_element(config.window);
  if (widest == config.window.end() || *widest == 0) return;
  metadata.set_integer(".attention.sliding_window", *widest);
  std::vector<bool> slides;
  bool as_usual = usual > 0;
  for (size_t layer = 0; layer < config.window.size(); ++layer) {
    slides.push_back(config.window[layer] > 0);
    as_usual = as_usual && slides.back() == ((static_cast<int64_t>(layer) + 1) % usual != 0);
  }
  if (!as_usual) metadata.set(".attention.sliding_window_pattern", slides);
}

// Sets the number of key heads for each layer. The layers in `without` have no attention and get 0.
void set_heads_by_layer(const ModelConfig& config, const LayerSet& without, GgufMetadata& metadata) {
  std::vector<int32_t> heads(static_cast<size_t>(config.num_hidden_layers),
                             static_cast<int32_t>(config.num_key_value_heads));
  for (const int64_t layer : without.numbers) heads[static_cast<size_t>(layer)] = 0;
  metadata.set(".attention.head_count_kv", heads);
}

// Returns the number of the first layer with experts; 0 when all layers have experts.
int64_t first_with_experts(const ModelConfig& config) {
  return config.expert_layers ? config.expert_layers->numbers.front() : 0;
}

void set_delta_net(const ModelConfig& config, GgufMetadata& metadata) {
  const DeltaNet& net = *config.delta_net;
  metadata.set_integer(".ssm.conv_kernel", net.width);
  metadata.set_integer(".ssm.state_size", net.key_dim);
  metadata.set_integer(".ssm.group_count", net.key_heads);
  metadata.set_integer(".ssm.time_step_rank", net.value_heads);
  metadata.set_integer(".ssm.inner_size", net.value_size());
  std::vector<bool> linear(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t layer : net.layers.numbers) linear[static_cast<size_t>(layer)] = true;
  metadata.set(".attention.recurrent_layers", linear);
  metadata.set_integer(".full_attention_interval", 4);  // the list above takes precedence
}

void set_mamba2(const ModelConfig& config, GgufMetadata& metadata) {
  const Mamba2 mamba = config.mamba2.value_or(Mamba2{});
  metadata.set_integer(".ssm.conv_kernel", mamba.width);
  metadata.set_integer(".ssm.inner_size", mamba.inner());
  metadata.set_integer(".ssm.state_size", mamba.state);
  metadata.set_integer(".ssm.time_step_rank", mamba.heads);
  metadata.set_integer(".ssm.group_count", mamba.groups);
}

}  // namespace

std::vector<GgufTable> set_config_metadata(const GgufFamily& family, const ModelConfig& config, const Json& json,
                                           GgufMetadata& metadata) {
  metadata.set_integer(".block_count", config.num_hidden_layers);
  metadata.set_integer(".context_length", config.max_position_embeddings);
  metadata.set_integer(".embedding_length", config.hidden_size);
  metadata.set_integer(".feed_forward_length", json_value(json, "intermediate_size", config.intermediate_size));
  metadata.set_integer(".attention.head_count", config.num_attention_heads);
  metadata.set_integer(".attention.head_count_kv", config.num_key_value_heads);
  metadata.set_integer(".attention.key_length", config.head_dim);
  metadata.set_integer(".attention.value_length", config.head_dim);
  metadata.set_integer(".vocab_size", config.vocab_size);
  const bool rms = config.norm == Norm::kRms || config.norm == Norm::kRmsPlusOne;
  metadata.set_number(rms ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon", config.norm_eps);
  if (config.num_experts > 0) {
    metadata.set_integer(".expert_count", config.num_experts);
    metadata.set_integer(".expert_used_count", config.experts_per_token);
  }
  // GPT-2 and StarCoder have learned positions.
  const bool rotates =
      std::ranges::none_of(family.names, [](const GgufName& name) { return name.gguf == "position_embd"; });
  std::vector<GgufTable> tables;
  if (rotates) tables = set_rope(config, json, metadata);
  family.metadata(config, json, metadata);
  return tables;
}

void no_metadata(const ModelConfig&, const Json&, GgufMetadata&) {}

void ministral3_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_number(".rope.scaling.yarn_log_multiplier", config.rope.mscale_all_dim);
  metadata.set_number(".attention.temperature_scale", config.query_growth);
}

void qwen3_moe_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
}

void qwen2_moe_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".expert_shared_feed_forward_length", config.shared_expert->size);
}

// The sections of mrope are for images. For text, only their sum matters.
void qwen3_5_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  set_delta_net(config, metadata);
  const Json given = rope_field(json, "mrope_section");
  std::vector<int32_t> sections{11, 11, 10, 0};
  for (size_t i = 0; i < std::min<size_t>(sections.size(), given.size()); ++i)
    if (given[i].is_number_integer()) sections[i] = given[i].get<int32_t>();
  metadata.set(".rope.dimension_sections", sections);
}

void qwen3_5_moe_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  qwen2_moe_metadata(config, json, metadata);
  qwen3_5_metadata(config, json, metadata);
}

void qwen3_next_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  qwen2_moe_metadata(config, json, metadata);
  set_delta_net(config, metadata);
}

void gemma2_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_number(".attn_logit_softcapping", config.attention_softcap);
  metadata.set_number(".final_logit_softcapping", config.logit_softcap);
  set_window(config, 2, metadata);
}

void gemma3_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  if (config.logit_softcap > 0) metadata.set_number(".final_logit_softcapping", config.logit_softcap);
  set_window(config, 6, metadata);
}

void gemma4_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  const Gemma4& gemma = *config.gemma4;
  metadata.set_number(".rope.freq_base", gemma.full_rope.rope_theta);
  metadata.set_number(".rope.freq_base_swa", config.rope.rope_theta);
  metadata.set_integer(".rope.dimension_count", gemma.full_head_dim);
  metadata.set_integer(".rope.dimension_count_swa", config.rope.rotary_dim(config.head_dim));
  for (const char* part : {"key", "value"}) {
    metadata.set_integer(std::string(".attention.") + part + "_length", gemma.full_head_dim);
    metadata.set_integer(std::string(".attention.") + part + "_length_swa", config.head_dim);
  }
  metadata.set_integer(".attention.sliding_window", std::ranges::max(config.window));
  std::vector<bool> slides;
  std::vector<int32_t> heads, lengths;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    slides.push_back(config.window[static_cast<size_t>(layer)] > 0);
    heads.push_back(static_cast<int32_t>(slides.back() ? config.num_key_value_heads : gemma.full_key_heads));
    const bool wide = gemma.wide_mlp && layer >= config.num_hidden_layers - gemma.shared_layers;
    lengths.push_back(static_cast<int32_t>(wide ? 2 * config.intermediate_size : config.intermediate_size));
  }
  metadata.set(".attention.sliding_window_pattern", slides);
  if (gemma.full_key_heads != config.num_key_value_heads) metadata.set(".attention.head_count_kv", heads);
  if (gemma.wide_mlp) metadata.set(".feed_forward_length", lengths);
  metadata.set_integer(".attention.shared_kv_layers", gemma.shared_layers);
  metadata.set_integer(".embedding_length_per_layer_input", gemma.layer_size);
  if (config.logit_softcap > 0) metadata.set_number(".final_logit_softcapping", config.logit_softcap);
  if (config.num_experts > 0) metadata.set_integer(".expert_feed_forward_length", config.expert_size);
}

// In Phi-3 all layers have the same window. 0 means no window.
void phi3_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  const int64_t scaled = config.rope.original_max_position_embeddings;
  metadata.set_integer(
      ".rope.scaling.original_context_length",
      scaled > 0 ? scaled : json_value(json, "original_max_position_embeddings", config.max_position_embeddings));
  if (config.rope.rope_type == "longrope")
    metadata.set_number(".rope.scaling.attn_factor", config.rope.attention_factor);
  metadata.set_integer(".attention.sliding_window", config.uniform_window().value_or(0));
}

void gpt_neox_metadata(const ModelConfig&, const Json& json, GgufMetadata& metadata) {
  metadata.set(".use_parallel_residual", json_value(json, "use_parallel_residual", true));
}

void olmo3_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  set_window(config, 0, metadata);
}

void granite_metadata(const ModelConfig&, const Json& json, GgufMetadata& metadata) {
  for (const auto& [field, key] : {std::pair{"attention_multiplier", ".attention.scale"},
                                   {"embedding_multiplier", ".embedding_scale"},
                                   {"residual_multiplier", ".residual_scale"},
                                   {"logits_scaling", ".logit_scale"}})
    metadata.set_number(key, json_value(json, field, 1.0));
}

void lfm2_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".feed_forward_length", config.intermediate_size);
  metadata.set_integer(".shortconv.l_cache", config.lfm2->width);
  set_heads_by_layer(config, config.lfm2->layers, metadata);
}

void lfm2_moe_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  lfm2_metadata(config, json, metadata);
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".leading_dense_block_count", first_with_experts(config));
  metadata.set_integer(".expert_gating_func", kSigmoidGating);
}

void minimax_m2_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".expert_gating_func", kSigmoidGating);
}

void routed_experts_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".expert_group_count", config.routing.groups);
  metadata.set_integer(".expert_group_used_count", config.routing.top_groups);
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".expert_shared_count", config.shared_expert->size / config.expert_size);
  metadata.set_integer(".leading_dense_block_count", first_with_experts(config));
  metadata.set_integer(".expert_gating_func", config.routing.sigmoid ? kSigmoidGating : kSoftmaxGating);
  metadata.set_number(".expert_weights_scale", config.routing.scale);
  metadata.set(".expert_weights_norm", config.routing.normalised);
}

// llama.cpp multiplies queries by attn_k_b, so that all heads have the same keys: the latent vectors.
void deepseek_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  routed_experts_metadata(config, json, metadata);
  const LatentAttention& latent = *config.latent;
  metadata.set_integer(".attention.head_count_kv", 1);
  metadata.set_integer(".attention.key_length", latent.key_rank + latent.rotary_dim);
  metadata.set_integer(".attention.value_length", latent.key_rank);
  metadata.set_integer(".attention.key_length_mla", latent.plain_dim + latent.rotary_dim);
  metadata.set_integer(".attention.value_length_mla", latent.value_dim);
  metadata.set_integer(".attention.kv_lora_rank", latent.key_rank);
  if (latent.query_rank > 0) metadata.set_integer(".attention.q_lora_rank", latent.query_rank);
  if (config.rope.rope_type == "yarn" && config.rope.mscale_all_dim > 0)
    metadata.set_number(".rope.scaling.yarn_log_multiplier", 0.1 * config.rope.mscale_all_dim);
}

// In llama.cpp, a layer without key heads is Mamba2 if the length of its MLP is 0, and an MLP or experts otherwise.
void nemotron_h_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  std::vector<int32_t> lengths(static_cast<size_t>(config.num_hidden_layers));
  const LayerSet& fed = config.expert_layers ? *config.expert_layers : config.nemotron_h->mlp;
  for (const int64_t layer : fed.numbers)
    lengths[static_cast<size_t>(layer)] =
        static_cast<int32_t>(config.num_experts > 0 ? config.expert_size : config.intermediate_size);
  metadata.set(".feed_forward_length", lengths);
  set_heads_by_layer(config, layers_without(config.nemotron_h->attention, config.num_hidden_layers), metadata);
  metadata.set_number(".attention.layer_norm_epsilon", config.norm_eps);
  metadata.set(".rope.scaling.finetuned", false);
  set_mamba2(config, metadata);
  if (config.num_experts == 0) return;
  metadata.set_integer(".expert_group_count", config.routing.groups);
  metadata.set_integer(".expert_group_used_count", config.routing.top_groups);
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".expert_shared_feed_forward_length", config.shared_expert->size);
  metadata.set_integer(".expert_shared_count", 1);
  metadata.set(".expert_weights_norm", config.routing.normalised);
  metadata.set_number(".expert_weights_scale", config.routing.scale);
  if (config.expert_width > 0) metadata.set_integer(".moe_latent_size", config.expert_width);
}

void falcon_h1_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  set_mamba2(config, metadata);
}

void llama4_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  if (config.num_experts == 0)
    throw UserError("export_gguf: GGUF files of Llama 4 without experts are not available; export it as safetensors");
  metadata.set_integer(".feed_forward_length", config.intermediate_size);
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  metadata.set_integer(".interleave_moe_layer_step", json_value(json, "interleave_moe_layer_step", int64_t{1}));
}

void granite4_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  granite_metadata(config, json, metadata);
  metadata.set_integer(".feed_forward_length", config.num_experts > 0 ? config.expert_size : config.intermediate_size);
  metadata.set_integer(".expert_shared_feed_forward_length", config.intermediate_size);
  metadata.set_integer(".expert_count", config.num_experts);
  metadata.set_integer(".expert_used_count", config.experts_per_token);
  metadata.set(".rope.scaling.finetuned", config.rotates.empty());
  set_heads_by_layer(config, config.mamba2 ? config.mamba2->layers : LayerSet{}, metadata);
  set_mamba2(config, metadata);
  if (config.mamba2) return;
  // These keys tell a Granite 4 without Mamba2 from a Granite 3.
  metadata.set_integer(".ssm.conv_kernel", json_value(json, "mamba_d_conv", int64_t{4}));
  metadata.set_integer(".ssm.state_size", json_value(json, "mamba_d_state", int64_t{256}));
  metadata.set_integer(".ssm.group_count", json_value(json, "mamba_n_groups", int64_t{1}));
  metadata.set_integer(".ssm.time_step_rank", json_value(json, "mamba_n_heads", int64_t{128}));
  metadata.set_integer(".ssm.inner_size", json_value(json, "mamba_expand", int64_t{2}) * config.hidden_size);
}

void baichuan_metadata(const ModelConfig&, const Json&, GgufMetadata& metadata) {
  metadata.set(".tensor_data_layout", std::string("Meta AI original pth"));
}

void gpt_oss_metadata(const ModelConfig& config, const Json&, GgufMetadata& metadata) {
  metadata.set_integer(".expert_feed_forward_length", config.expert_size);
  set_window(config, 2, metadata);
}

void cohere2_metadata(const ModelConfig& config, const Json& json, GgufMetadata& metadata) {
  metadata.set_number(".logit_scale", json_value(json, "logit_scale", 0.0625));
  metadata.set(".rope.scaling.type", std::string("none"));
  set_window(config, 4, metadata);
}

}  // namespace fettle
