#include "checkpoint/gguf/write/config_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
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

std::vector<int64_t> expert_layers_of(const ModelConfig& config) {
  return config.expert_layers ? config.expert_layers->numbers : std::vector<int64_t>{};
}

std::vector<int64_t> plain_mlp_layers_of(const ModelConfig& config) {
  return config.nemotron_h ? config.nemotron_h->mlp.numbers : std::vector<int64_t>{};
}

ClampedSwiglu swiglu_of(const ModelConfig& config) {
  return config.clamped_swiglu.value_or(ClampedSwiglu{});
}

// Returns the rope of layers with a window.
const RopeParameters& local_rope_of(const ModelConfig& config) {
  return config.local_rope ? *config.local_rope : config.rope;
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

// Compares two configs, or the same part of two configs, field by field. Notes the first difference. A field is a
// member, or a function of the config.
template <typename Config>
class Comparison {
 public:
  // `a` is of the model, `b` of the file. Keeps all three by reference.
  Comparison(const Config& a, const Config& b, std::optional<Difference>& found) : a_(a), b_(b), found_(found) {}

  void exact(const char* name, const auto& field) { note(name, field, std::equal_to<>()); }
  void close(const char* name, const auto& field) {
    note(name, field, [](double x, double y) { return are_close(x, y); });
  }
  // The field is a list of layers. `nothing` is what an empty list means.
  void layers(const char* name, const auto& field, const char* nothing = "none") {
    const std::vector<int64_t> x = std::invoke(field, a_), y = std::invoke(field, b_);
    const auto list = [&](const std::vector<int64_t>& numbers) {
      return numbers.empty() ? nothing : fmt::format("{}", fmt::join(numbers, ", "));
    };
    if (x != y && !found_) found_ = Difference{fmt::format("{} are {}", name, list(x)), list(y)};
  }
  void rope(const char* name, const auto& field, int64_t head_dim) {
    const RopeParameters &x = std::invoke(field, a_), &y = std::invoke(field, b_);
    if (!found_ && !same_rope(x, y, head_dim)) found_ = rope_difference(name, x, y);
  }
  // The field is a part that some families have. Compares its fields if both configs have it.
  void part(const auto& field, const auto& compare) {
    const auto &x = std::invoke(field, a_), &y = std::invoke(field, b_);
    if (x && y) compare(Comparison<std::decay_t<decltype(*x)>>(*x, *y, found_));
  }

 private:
  void note(const char* name, const auto& field, const auto& same) {
    const auto &x = std::invoke(field, a_), &y = std::invoke(field, b_);
    if (!same(x, y) && !found_) found_ = Difference{fmt::format("{} is {}", name, x), fmt::format("{}", y)};
  }

  const Config &a_, &b_;
  std::optional<Difference>& found_;
};

void compare_experts(Comparison<ModelConfig>& both) {
  both.exact("moe_intermediate_size", &ModelConfig::expert_size);
  both.exact("num_experts", &ModelConfig::num_experts);
  both.exact("num_experts_per_tok", &ModelConfig::experts_per_token);
  both.exact("norm_topk_prob", [](const ModelConfig& config) { return config.routing.normalised; });
  both.exact("the router's score function", name_of_scores);
  both.layers("layers with experts (mlp_only_layers, decoder_sparse_step)", expert_layers_of, "all");
  both.exact("the size of the shared expert", shared_size_of);
  both.close("routed_scaling_factor", [](const ModelConfig& config) { return config.routing.scale; });
  both.exact("n_group", [](const ModelConfig& config) { return config.routing.groups; });
  both.exact("topk_group", [](const ModelConfig& config) { return config.routing.top_groups; });
  both.exact("use_expert_bias", [](const ModelConfig& config) { return !config.routing.correction.empty(); });
  both.exact("moe_latent_size", &ModelConfig::expert_width);
}

// Compares the parts that have layers with a state instead of attention.
void compare_recurrent_parts(Comparison<ModelConfig>& both) {
  both.layers("layers with linear attention", [](const ModelConfig& config) { return numbers_of(config.delta_net); });
  both.part(&ModelConfig::delta_net, [](Comparison<DeltaNet> net) {
    net.exact("linear_num_key_heads", &DeltaNet::key_heads);
    net.exact("linear_num_value_heads", &DeltaNet::value_heads);
    net.exact("linear_key_head_dim", &DeltaNet::key_dim);
    net.exact("linear_value_head_dim", &DeltaNet::value_dim);
    net.exact("linear_conv_kernel_dim", &DeltaNet::width);
  });
  both.layers("layers with Mamba2", [](const ModelConfig& config) { return numbers_of(config.mamba2); });
  both.part(&ModelConfig::mamba2, [](Comparison<Mamba2> mamba) {
    mamba.exact("mamba_n_heads or mamba_num_heads", &Mamba2::heads);
    mamba.exact("mamba_d_head or mamba_head_dim", &Mamba2::head_dim);
    mamba.exact("mamba_n_groups or n_groups", &Mamba2::groups);
    mamba.exact("mamba_d_state or ssm_state_size", &Mamba2::state);
    mamba.exact("mamba_d_conv or conv_kernel", &Mamba2::width);
    mamba.exact("mamba_conv_bias or use_conv_bias", &Mamba2::conv_bias);
    mamba.exact("mamba_proj_bias or use_bias (in_proj)", &Mamba2::in_bias);
    mamba.exact("mamba_proj_bias or use_bias (out_proj)", &Mamba2::out_bias);
    mamba.exact("mamba_rms_norm", &Mamba2::normed);
    mamba.close("the lower bound of time_step_limit", &Mamba2::least_step);
    mamba.close("the upper bound of time_step_limit (0: none)", &Mamba2::largest_step);
  });
  both.layers("layers with an MLP", plain_mlp_layers_of);
  both.layers("layers with a short convolution", [](const ModelConfig& config) { return numbers_of(config.lfm2); });
  both.part(&ModelConfig::lfm2, [](Comparison<Lfm2> lfm2) {
    lfm2.exact("conv_L_cache", &Lfm2::width);
    lfm2.exact("conv_bias", &Lfm2::bias);
  });
}

// Compares what some families' attention has of its own.
void compare_attention_parts(const ModelConfig& model, Comparison<ModelConfig>& both) {
  both.part(&ModelConfig::llama4, [](Comparison<Llama4> llama4) {
    llama4.exact("use_qk_norm", &Llama4::qk_norm);
    llama4.close("attn_scale", &Llama4::growth);
    llama4.close("floor_scale", &Llama4::unit);
  });
  if (model.llama4) both.exact("attention_chunk_size", &ModelConfig::attention_chunk);
  both.part(&ModelConfig::gemma4, [&](Comparison<Gemma4> gemma) {
    gemma.exact("global_head_dim", &Gemma4::full_head_dim);
    gemma.exact("num_global_key_value_heads", &Gemma4::full_key_heads);
    gemma.exact("attention_k_eq_v", &Gemma4::values_are_keys);
    gemma.exact("num_kv_shared_layers", &Gemma4::shared_layers);
    gemma.exact("use_double_wide_mlp", &Gemma4::wide_mlp);
    gemma.exact("hidden_size_per_layer_input", &Gemma4::layer_size);
    if (model.gemma4->layer_size > 0) gemma.exact("vocab_size_per_layer_input", &Gemma4::layer_vocab);
    gemma.rope("rope_parameters of full_attention", &Gemma4::full_rope, model.gemma4->full_head_dim);
  });
  both.part(&ModelConfig::latent, [](Comparison<LatentAttention> latent) {
    latent.exact("q_lora_rank", &LatentAttention::query_rank);
    latent.exact("kv_lora_rank", &LatentAttention::key_rank);
    latent.exact("qk_nope_head_dim", &LatentAttention::plain_dim);
    latent.exact("v_head_dim", &LatentAttention::value_dim);
  });
}

// Returns the first setting that differs between the model and the file. Does not compare windows: check_windows does.
std::optional<Difference> first_difference(const ModelConfig& model, const ModelConfig& file) {
  std::optional<Difference> found;
  Comparison both(model, file, found);
  both.exact("vocab_size", &ModelConfig::vocab_size);
  both.exact("hidden_size", &ModelConfig::hidden_size);
  both.exact("intermediate_size", mlp_size_of);
  both.exact("num_hidden_layers", &ModelConfig::num_hidden_layers);
  both.exact("num_attention_heads", &ModelConfig::num_attention_heads);
  both.exact("num_key_value_heads", &ModelConfig::num_key_value_heads);
  both.exact("head_dim", &ModelConfig::head_dim);
  both.exact("max_position_embeddings", &ModelConfig::max_position_embeddings);
  both.exact("tie_word_embeddings", &ModelConfig::tie_word_embeddings);
  both.exact("hidden_act", activation_of);
  both.close("rms_norm_eps or layer_norm_eps", &ModelConfig::norm_eps);
  both.exact("the kind of norm", name_of_norm);
  both.exact("the kind of MLP", name_of_mlp);
  compare_experts(both);
  both.close("embedding_multiplier", &ModelConfig::embedding_scale);
  both.close("residual_multiplier", &ModelConfig::residual_scale);
  both.close("logits_scaling or logit_scale", &ModelConfig::logit_scale);
  both.exact("attention_bias", &ModelConfig::attention_bias);
  both.exact("attention_out_bias",
             [](const ModelConfig& config) { return config.output_bias.value_or(config.attention_bias); });
  both.exact("norms of q and k", &ModelConfig::qk_norm);
  both.exact("mlp_bias", &ModelConfig::mlp_bias);
  both.exact("use_parallel_residual", &ModelConfig::parallel_mlp);
  both.exact("alibi", &ModelConfig::alibi);
  both.close("swiglu_alpha", [](const ModelConfig& config) { return swiglu_of(config).alpha; });
  both.close("swiglu_limit", [](const ModelConfig& config) { return swiglu_of(config).limit; });
  both.close("the scale of queries (query_pre_attn_scalar, attention_multiplier)", attention_scale_of);
  both.close("llama_4_scaling_beta", &ModelConfig::query_growth);
  both.close("attn_logit_softcapping", &ModelConfig::attention_softcap);
  both.close("final_logit_softcapping", &ModelConfig::logit_softcap);
  both.layers("layers without rope (no_rope_layers)", layers_without_rope);
  compare_attention_parts(model, both);
  compare_recurrent_parts(both);
  both.exact("original_max_position_embeddings", [](const ModelConfig& config) { return turn_of(config.rope); });
  both.close("the attention factor of rope_parameters (mscale, mscale_all_dim)",
             [](const ModelConfig& config) { return config.rope.attention_factor; });
  both.rope("rope_parameters", &ModelConfig::rope, model.head_dim);
  if (std::ranges::any_of(model.window, [](int64_t window) { return window > 0; }))
    both.rope("rope_parameters of layers with a window", local_rope_of, model.head_dim);
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
  const GgufFields fields(header, {bytes}, name);
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
