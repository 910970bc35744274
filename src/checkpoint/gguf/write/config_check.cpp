#include "checkpoint/gguf/write/config_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/write/folded_factors.h"
#include "models/blocks/rope.h"
#include "models/model.h"

namespace fettle {
namespace {

// Compares numbers with the precision of 32-bit floats, which GGUF files store.
bool are_close(double a, double b) {
  return std::abs(a - b) <= 2e-6 * std::max(std::abs(a), std::abs(b));
}

bool are_close(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return are_close(x, y); });
}

// Returns hidden_act. gelu_new and gelu_pytorch_tanh are the same function, so both give gelu_pytorch_tanh.
std::string activation_of(const ModelConfig& config) {
  return config.hidden_act == "gelu_new" ? "gelu_pytorch_tanh" : config.hidden_act;
}

// Returns whether `a` and `b` rotate the dims of a head with the same frequencies, in short and in long texts, and have
// the same attention factor.
bool same_rope(const RopeParameters& a, const RopeParameters& b, int64_t head_dim) {
  const int64_t dims = a.rotary_dim(head_dim);
  if (dims != b.rotary_dim(head_dim) || a.interleaved != b.interleaved) return false;
  const auto frequencies = [&](const RopeParameters& rope, const std::vector<double>& divisors) {
    return inverse_frequencies(rope, dims, divisors);
  };
  return are_close(a.attention_factor, b.attention_factor) &&
         are_close(frequencies(a, a.short_factor), frequencies(b, b.short_factor)) &&
         are_close(frequencies(a, a.long_factor), frequencies(b, b.long_factor));
}

// Returns the length above which longrope uses its long factors; 0 when all texts have the same factors.
int64_t turn_of(const RopeParameters& rope) {
  return rope.rope_type == "longrope" && rope.short_factor != rope.long_factor ? rope.original_max_position_embeddings
                                                                               : 0;
}

double attention_scale_of(const ModelConfig& config) {
  return config.attention_scale != 0 ? config.attention_scale : 1 / std::sqrt(static_cast<double>(config.head_dim));
}

// Returns the numbers of the layers that have this part of the config; none if the model lacks the part.
template <typename Part>
std::vector<int64_t> numbers_of(const std::optional<Part>& part) {
  return part ? part->layers.numbers : std::vector<int64_t>{};
}

std::vector<int64_t> layers_without_rope(const ModelConfig& config) {
  std::vector<int64_t> out;
  for (size_t layer = 0; layer < config.rotates.size(); ++layer)
    if (!config.rotates[layer]) out.push_back(static_cast<int64_t>(layer));
  return out;
}

std::string name_of_norm(const ModelConfig& config) {
  switch (config.norm) {
    case Norm::kRms: return "RMSNorm";
    case Norm::kRmsPlusOne: return "RMSNorm with the factors 1 + weight";
    case Norm::kLayer: return "LayerNorm";
    case Norm::kCentred: return "LayerNorm without bias";
  }
  return "";
}

std::string name_of_mlp(const ModelConfig& config) {
  switch (config.mlp) {
    case Mlp::kGated: return "a gated MLP";
    case Mlp::kFusedGated: return "a gated MLP with gate and up in one weight";
    case Mlp::kPlain: return "an MLP without gate";
    case Mlp::kExperts: return "experts";
  }
  return "";
}

std::string name_of_scores(const ModelConfig& config) {
  return config.routing.sigmoid ? "sigmoid" : "softmax";
}

// Returns the inner size of the dense MLPs; 0 when no layer has a dense MLP.
int64_t mlp_size_of(const ModelConfig& config) {
  return config.nemotron_h && config.nemotron_h->mlp.count() == 0 ? 0 : config.intermediate_size;
}

int64_t shared_size_of(const ModelConfig& config) {
  return config.shared_expert ? config.shared_expert->size : 0;
}

// A setting that differs. `wanted` is what the model has, such as "hidden_act is gelu". `got` is the value that
// llama.cpp would take.
struct Difference {
  std::string wanted, got;
};

// Returns the first field that differs between two ropes that rotate differently. `name` is the object that has the
// fields, for the message: "rope_parameters".
Difference rope_difference(const char* name, const RopeParameters& a, const RopeParameters& b) {
  const auto differ = [&](const char* field, const auto& x, const auto& y) {
    return Difference{fmt::format("{} of {} is {}", field, name, x), fmt::format("{}", y)};
  };
  if (a.rope_type != b.rope_type) return differ("rope_type", a.rope_type, b.rope_type);
  using Field = std::pair<const char*, double RopeParameters::*>;
  for (const auto& [field, value] : {Field{"rope_theta", &RopeParameters::rope_theta},
                                     {"partial_rotary_factor", &RopeParameters::partial_rotary_factor},
                                     {"factor", &RopeParameters::factor},
                                     {"low_freq_factor", &RopeParameters::low_freq_factor},
                                     {"high_freq_factor", &RopeParameters::high_freq_factor},
                                     {"beta_fast", &RopeParameters::beta_fast},
                                     {"beta_slow", &RopeParameters::beta_slow}})
    if (!are_close(a.*value, b.*value)) return differ(field, a.*value, b.*value);
  if (a.original_max_position_embeddings != b.original_max_position_embeddings)
    return differ("original_max_position_embeddings", a.original_max_position_embeddings,
                  b.original_max_position_embeddings);
  if (a.truncate != b.truncate) return differ("truncate", a.truncate, b.truncate);
  return {fmt::format("{} has the rope_type {}", name, a.rope_type), "other frequencies"};
}

// Returns the first setting that differs between the model `a` and the file `b`. Does not compare windows:
// check_windows does.
std::optional<Difference> first_difference(const ModelConfig& a, const ModelConfig& b) {
  std::optional<Difference> found;
  const auto note = [&](const char* field, bool same, const auto& x, const auto& y) {
    if (!same && !found) found = Difference{fmt::format("{} is {}", field, x), fmt::format("{}", y)};
  };
  const auto layers = [&](const char* field, const std::vector<int64_t>& x, const std::vector<int64_t>& y,
                          const char* nothing = "none") {
    const auto list = [&](const std::vector<int64_t>& numbers) {
      return numbers.empty() ? nothing : fmt::format("{}", fmt::join(numbers, ", "));
    };
    if (x != y && !found) found = Difference{fmt::format("{} are {}", field, list(x)), list(y)};
  };
  const auto ropes = [&](const char* field, const RopeParameters& x, const RopeParameters& y, int64_t head_dim) {
    if (!found && !same_rope(x, y, head_dim)) found = rope_difference(field, x, y);
  };
  const auto exact = [&](const char* field, const auto& x, const auto& y) { note(field, x == y, x, y); };
  const auto close = [&](const char* field, double x, double y) { note(field, are_close(x, y), x, y); };
  exact("vocab_size", a.vocab_size, b.vocab_size);
  exact("hidden_size", a.hidden_size, b.hidden_size);
  exact("intermediate_size", mlp_size_of(a), mlp_size_of(b));
  exact("num_hidden_layers", a.num_hidden_layers, b.num_hidden_layers);
  exact("num_attention_heads", a.num_attention_heads, b.num_attention_heads);
  exact("num_key_value_heads", a.num_key_value_heads, b.num_key_value_heads);
  exact("head_dim", a.head_dim, b.head_dim);
  exact("max_position_embeddings", a.max_position_embeddings, b.max_position_embeddings);
  exact("tie_word_embeddings", a.tie_word_embeddings, b.tie_word_embeddings);
  exact("hidden_act", activation_of(a), activation_of(b));
  close("rms_norm_eps or layer_norm_eps", a.norm_eps, b.norm_eps);
  exact("the kind of norm", name_of_norm(a), name_of_norm(b));
  exact("the kind of MLP", name_of_mlp(a), name_of_mlp(b));
  exact("moe_intermediate_size", a.expert_size, b.expert_size);
  exact("num_experts", a.num_experts, b.num_experts);
  exact("num_experts_per_tok", a.experts_per_token, b.experts_per_token);
  exact("norm_topk_prob", a.routing.normalised, b.routing.normalised);
  exact("the router's score function", name_of_scores(a), name_of_scores(b));
  layers("layers with experts (mlp_only_layers, decoder_sparse_step)",
         a.expert_layers ? a.expert_layers->numbers : std::vector<int64_t>{},
         b.expert_layers ? b.expert_layers->numbers : std::vector<int64_t>{}, "all");
  exact("the size of the shared expert", shared_size_of(a), shared_size_of(b));
  close("routed_scaling_factor", a.routing.scale, b.routing.scale);
  exact("n_group", a.routing.groups, b.routing.groups);
  exact("topk_group", a.routing.top_groups, b.routing.top_groups);
  exact("use_expert_bias", !a.routing.correction.empty(), !b.routing.correction.empty());
  exact("moe_latent_size", a.expert_width, b.expert_width);
  close("embedding_multiplier", a.embedding_scale, b.embedding_scale);
  close("residual_multiplier", a.residual_scale, b.residual_scale);
  close("logits_scaling or logit_scale", a.logit_scale, b.logit_scale);
  exact("attention_bias", a.attention_bias, b.attention_bias);
  exact("attention_out_bias", a.output_bias.value_or(a.attention_bias), b.output_bias.value_or(b.attention_bias));
  exact("norms of q and k", a.qk_norm, b.qk_norm);
  exact("mlp_bias", a.mlp_bias, b.mlp_bias);
  exact("use_parallel_residual", a.parallel_mlp, b.parallel_mlp);
  exact("alibi", a.alibi, b.alibi);
  const ClampedSwiglu swiglu = a.clamped_swiglu.value_or(ClampedSwiglu{}),
                      other_swiglu = b.clamped_swiglu.value_or(ClampedSwiglu{});
  close("swiglu_alpha", swiglu.alpha, other_swiglu.alpha);
  close("swiglu_limit", swiglu.limit, other_swiglu.limit);
  close("the scale of queries (query_pre_attn_scalar, attention_multiplier)", attention_scale_of(a),
        attention_scale_of(b));
  close("llama_4_scaling_beta", a.query_growth, b.query_growth);
  close("attn_logit_softcapping", a.attention_softcap, b.attention_softcap);
  close("final_logit_softcapping", a.logit_softcap, b.logit_softcap);
  layers("layers without rope (no_rope_layers)", layers_without_rope(a), layers_without_rope(b));
  if (a.llama4 && b.llama4) {
    exact("use_qk_norm", a.llama4->qk_norm, b.llama4->qk_norm);
    close("attn_scale", a.llama4->growth, b.llama4->growth);
    close("floor_scale", a.llama4->unit, b.llama4->unit);
    exact("attention_chunk_size", a.attention_chunk, b.attention_chunk);
  }
  if (a.gemma4 && b.gemma4) {
    const Gemma4 &gemma = *a.gemma4, &other = *b.gemma4;
    exact("global_head_dim", gemma.full_head_dim, other.full_head_dim);
    exact("num_global_key_value_heads", gemma.full_key_heads, other.full_key_heads);
    exact("attention_k_eq_v", gemma.values_are_keys, other.values_are_keys);
    exact("num_kv_shared_layers", gemma.shared_layers, other.shared_layers);
    exact("use_double_wide_mlp", gemma.wide_mlp, other.wide_mlp);
    exact("hidden_size_per_layer_input", gemma.layer_size, other.layer_size);
    if (gemma.layer_size > 0) exact("vocab_size_per_layer_input", gemma.layer_vocab, other.layer_vocab);
    ropes("rope_parameters of full_attention", gemma.full_rope, other.full_rope, gemma.full_head_dim);
  }
  if (a.latent && b.latent) {
    exact("q_lora_rank", a.latent->query_rank, b.latent->query_rank);
    exact("kv_lora_rank", a.latent->key_rank, b.latent->key_rank);
    exact("qk_nope_head_dim", a.latent->plain_dim, b.latent->plain_dim);
    exact("v_head_dim", a.latent->value_dim, b.latent->value_dim);
  }
  layers("layers with linear attention", numbers_of(a.delta_net), numbers_of(b.delta_net));
  if (a.delta_net && b.delta_net) {
    const DeltaNet &net = *a.delta_net, &other = *b.delta_net;
    exact("linear_num_key_heads", net.key_heads, other.key_heads);
    exact("linear_num_value_heads", net.value_heads, other.value_heads);
    exact("linear_key_head_dim", net.key_dim, other.key_dim);
    exact("linear_value_head_dim", net.value_dim, other.value_dim);
    exact("linear_conv_kernel_dim", net.width, other.width);
  }
  layers("layers with Mamba2", numbers_of(a.mamba2), numbers_of(b.mamba2));
  if (a.mamba2 && b.mamba2) {
    const Mamba2 &mamba = *a.mamba2, &other = *b.mamba2;
    exact("mamba_n_heads or mamba_num_heads", mamba.heads, other.heads);
    exact("mamba_d_head or mamba_head_dim", mamba.head_dim, other.head_dim);
    exact("mamba_n_groups or n_groups", mamba.groups, other.groups);
    exact("mamba_d_state or ssm_state_size", mamba.state, other.state);
    exact("mamba_d_conv or conv_kernel", mamba.width, other.width);
    exact("mamba_conv_bias or use_conv_bias", mamba.conv_bias, other.conv_bias);
    exact("mamba_proj_bias or use_bias (in_proj)", mamba.in_bias, other.in_bias);
    exact("mamba_proj_bias or use_bias (out_proj)", mamba.out_bias, other.out_bias);
    exact("mamba_rms_norm", mamba.normed, other.normed);
    close("the lower bound of time_step_limit", mamba.least_step, other.least_step);
    close("the upper bound of time_step_limit (0: none)", mamba.largest_step, other.largest_step);
  }
  layers("layers with an MLP", a.nemotron_h ? a.nemotron_h->mlp.numbers : std::vector<int64_t>{},
         b.nemotron_h ? b.nemotron_h->mlp.numbers : std::vector<int64_t>{});
  layers("layers with a short convolution", numbers_of(a.lfm2), numbers_of(b.lfm2));
  if (a.lfm2 && b.lfm2) exact("conv_L_cache", a.lfm2->width, b.lfm2->width);
  if (a.lfm2 && b.lfm2) exact("conv_bias", a.lfm2->bias, b.lfm2->bias);
  exact("original_max_position_embeddings", turn_of(a.rope), turn_of(b.rope));
  close("the attention factor of rope_parameters (mscale, mscale_all_dim)", a.rope.attention_factor,
        b.rope.attention_factor);
  ropes("rope_parameters", a.rope, b.rope, a.head_dim);
  const RopeParameters &local = a.local_rope.value_or(a.rope), &other = b.local_rope.value_or(b.rope);
  if (std::ranges::any_of(a.window, [](int64_t window) { return window > 0; }))
    ropes("rope_parameters of layers with a window", local, other, a.head_dim);
  return found;
}

// llama.cpp always rounds the two ends of the range over which YaRN blends frequencies. A GGUF file does not say
// whether its model rounds them. When Fettle reads a GPT-OSS file, it assumes that the model does not, because the
// published models do not round them.
void check_gpt_oss(const ModelConfig& config, const std::string& model) {
  if (config.rope.rope_type != "yarn") return;
  if (config.rope.truncate)
    throw UserError(
        "{}: rope_parameters has truncate: true; the published models of GPT-OSS have false, and GGUF cannot express "
        "this field; export it as safetensors (without export_gguf)",
        model);
  warn(
      "{}: llama.cpp always rounds the two ends of the range over which YaRN blends frequencies (as with truncate: "
      "true). This model does not round them, so llama.cpp's logits differ from the model's",
      model);
}

// llama.cpp decides by the number of layers whether a DeepSeek model has q_lora_rank; for 48 layers, also by the size
// of the vocabulary. In llama.cpp, the score of a group is always the sum of its two best experts' scores.
void check_deepseek(const ModelConfig& config, const std::string& model) {
  const int64_t layers = config.num_hidden_layers;
  const bool lite = layers == 26 || layers == 27 || (layers == 48 && config.vocab_size == 128256);
  if ((config.latent->query_rank == 0) != lite)
    throw UserError(
        "{}: llama.cpp cannot read this model: it expects {} q_lora_rank in DeepSeek models with {} layers and a "
        "vocabulary of {} tokens; export it as safetensors (without export_gguf)",
        model, lite ? "no" : "a", layers, config.vocab_size);
  if (config.routing.groups > 1 && !config.routing.best_two)
    throw UserError(
        "{}: GGUF cannot express this model: topk_method is group_limited_greedy, and llama.cpp would compute with "
        "noaux_tc; export it as safetensors (without export_gguf)",
        model);
}

// llama.cpp knows from the number of layers whether a Baichuan model is the 7B (rope) or the 13B (ALiBi).
void check_baichuan(const ModelConfig& config, const std::string& model) {
  const int64_t layers = config.num_hidden_layers;
  if (layers != (config.alibi ? 40 : 32))
    warn(
        "{}: llama.cpp knows Baichuan models of 32 layers (with rope) and of 40 layers (with ALiBi); this model has {}",
        model, layers);
}

void check_windows(const ModelConfig& a, const ModelConfig& b, const std::string& model) {
  // A window as long as the longest text has no effect.
  const auto windows = [](const ModelConfig& config) {
    std::vector<int64_t> out = config.window;
    out.resize(static_cast<size_t>(config.num_hidden_layers), 0);
    for (int64_t& window : out) window = window >= config.max_position_embeddings ? 0 : window;
    return out;
  };
  const std::vector<int64_t> wanted = windows(a), got = windows(b);
  if (wanted == got) return;
  if (std::ranges::all_of(got, [](int64_t window) { return window == 0; })) {
    warn(
        "{}: llama.cpp has no sliding window in this family, so its replies to texts of more than {} tokens differ "
        "from the model's",
        model, std::ranges::max(wanted));
    return;
  }
  throw UserError("{}: GGUF cannot express the model's sliding windows ({}) for this family; export it as safetensors",
                  model, fmt::join(wanted, ", "));
}

}  // namespace

void check_expressible(const GgufFamily& family, const GgufMetadata& metadata, const std::vector<GgufTable>& tables,
                       std::vector<GgufTensor> tensors, const ModelConfig& config, const std::string& model) {
  std::vector<std::byte> bytes;
  for (const GgufTable& table : tables) {
    const auto size = static_cast<int64_t>(table.values.size() * sizeof(float));
    GgufTensor tensor{table.tensor,
                      {static_cast<int64_t>(table.values.size())},
                      find_block_type("F32"),
                      static_cast<int64_t>(bytes.size()),
                      size};
    bytes.resize(bytes.size() + static_cast<size_t>(size));
    std::memcpy(bytes.data() + tensor.offset, table.values.data(), static_cast<size_t>(size));
    tensors.push_back(std::move(tensor));
  }
  const GgufHeader header = header_of(metadata, std::move(tensors));
  const std::string name = model + " as GGUF";
  const GgufFields fields(header, bytes, name);
  const GgufFamily& read = gguf_family_of(fields);
  internal_check(read.architecture == family.architecture, "'{}' is read as '{}'", family.architecture,
                 read.architecture);
  const ModelConfig back = make_model(gguf_config(read, fields), name).config;
  if (family.architecture == "gpt-oss") check_gpt_oss(config, model);
  if (const auto difference = first_difference(without_folded_factors(config), back))
    throw UserError(
        "{}: GGUF cannot express this model: {}, and llama.cpp would compute with {}; export it as safetensors "
        "(without export_gguf)",
        model, difference->wanted, difference->got);
  if (config.latent) check_deepseek(config, model);
  if (family.architecture == "baichuan") check_baichuan(config, model);
  check_windows(config, back, model);
}

}  // namespace fettle
