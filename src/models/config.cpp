#include "models/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "models/quantization_config.h"

namespace fettle {
namespace {

// Describes a value that is not a list of the wanted length, for a message: "has length 3" or "is 7".
std::string length_of(const nlohmann::json& value) {
  return value.is_array() ? fmt::format("has length {}", value.size()) : "is " + value.dump();
}

}  // namespace

int64_t RopeParameters::rotary_dim(int64_t head_dim) const {
  if (rope_type == "proportional") return head_dim;
  return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

LayerSet DeltaNet::other_layers() const {
  return layers_without(layers, all);
}

std::vector<std::pair<const char*, int64_t>> ModelConfig::key_heads() const {
  std::vector<std::pair<const char*, int64_t>> out{{"num_key_value_heads", num_key_value_heads}};
  if (gemma4) out.emplace_back("num_global_key_value_heads", gemma4->full_key_heads);
  return out;
}

std::optional<int64_t> ModelConfig::uniform_window() const {
  if (window.empty()) return 0;
  for (int64_t w : window)
    if (w != window[0]) return std::nullopt;
  return window[0];
}

const nlohmann::json& text_level(const nlohmann::json& config) {
  const auto inner = config.find("text_config");
  return inner != config.end() && inner->is_object() ? *inner : config;
}

std::optional<int64_t> vocab_size_of(const nlohmann::json& config) {
  const nlohmann::json& level = text_level(config);
  const auto size = level.find("vocab_size");
  if (size == level.end() || !size->is_number_integer()) return std::nullopt;
  return size->get<int64_t>();
}

std::vector<int32_t> end_ids(const nlohmann::json& config, const std::string& file) {
  std::vector<int32_t> ids;
  if (!config.is_object() || !config.contains("eos_token_id") || config["eos_token_id"].is_null()) return ids;
  const nlohmann::json& value = config["eos_token_id"];
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!id.is_number_integer() || !std::in_range<int32_t>(id.get<int64_t>()))
      throw UserError("{}: eos_token_id is {}, wanted a token id or a list of token ids", file, value.dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

const nlohmann::json* ConfigReader::find(const std::string& key) const {
  const auto at = json_->find(key);
  return at == json_->end() || at->is_null() ? nullptr : &*at;
}

bool ConfigReader::has(const std::string& key) const {
  return find(key) != nullptr;
}

bool ConfigReader::given(const std::string& key) const {
  return json_->contains(key);
}

int64_t ConfigReader::integer(const std::string& key) const {
  if (!has(key)) throw UserError("{}: '{}' is missing; is this a complete Hugging Face config.json?", file_, key);
  return integer(key, 0);
}

int64_t ConfigReader::integer(const std::string& key, int64_t otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  constexpr int64_t kLargest = int64_t{1} << 40;
  if (!value->is_number_integer() || value->get<int64_t>() <= 0 || value->get<int64_t>() > kLargest)
    throw UserError("{}: '{}' is {}, wanted a positive integer up to {}", file_, key, value->dump(), kLargest);
  return value->get<int64_t>();
}

int64_t ConfigReader::count(const std::string& key) const {
  const nlohmann::json* value = find(key);
  return value != nullptr && *value == 0 ? 0 : integer(key);
}

double ConfigReader::number(const std::string& key, double otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) throw UserError("{}: '{}' is {}, wanted a number", file_, key, value->dump());
  return value->get<double>();
}

std::vector<std::string> ConfigReader::texts(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) throw UserError("{}: '{}' is {}, wanted a list of strings", file_, key, value->dump());
  std::vector<std::string> out;
  for (const nlohmann::json& each : *value) {
    if (!each.is_string()) throw UserError("{}: '{}' contains {}, wanted a list of strings", file_, key, each.dump());
    out.push_back(each.get<std::string>());
  }
  return out;
}

std::vector<std::string> ConfigReader::texts_by_layer(const std::string& key, int64_t layers) const {
  std::vector<std::string> out = texts(key);
  if (!out.empty() && out.size() != static_cast<size_t>(layers)) refuse_layers(key, layers);
  return out;
}

std::vector<double> ConfigReader::numbers(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) throw UserError("{}: '{}' is {}, wanted a list of numbers", file_, key, value->dump());
  std::vector<double> out;
  for (const nlohmann::json& each : *value) {
    if (!each.is_number()) throw UserError("{}: '{}' contains {}, wanted a list of numbers", file_, key, each.dump());
    out.push_back(each.get<double>());
  }
  return out;
}

bool ConfigReader::flag(const std::string& key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) throw UserError("{}: '{}' is {}, wanted true or false", file_, key, value->dump());
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) throw UserError("{}: '{}' is {}, wanted a string", file_, key, value->dump());
  return value->get<std::string>();
}

void ConfigReader::refuse_layers(const std::string& key, int64_t layers) const {
  const nlohmann::json& list = json_->at(key);
  throw UserError("{}: '{}' {}, wanted a list with one element for each of the {} layers (num_hidden_layers)", file_,
                  key, length_of(list), layers);
}

void ConfigReader::refuse_unless(const std::string& key, const nlohmann::json& value) const {
  const nlohmann::json* found = find(key);
  if (found != nullptr && *found != value)
    throw UserError("{}: '{}' is {}; only {} is implemented for this family", file_, key, found->dump(), value.dump());
}

void ConfigReader::read_common(ModelConfig& config, bool tied_by_default) const {
  config.model_type = text("model_type", "");
  config.vocab_size = integer("vocab_size");
  config.tie_word_embeddings = flag("tie_word_embeddings", tied_by_default);
  config.initializer_range = number("initializer_range", 0.02);
  const char* dtype_key = has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = text(dtype_key, "float32");
  try {
    config.dtype = dtype_from_hf(dtype);
  } catch (const UserError& error) {
    throw UserError("{}: '{}': {}", file_, dtype_key, error.what());
  }
  if (is_float8(config.dtype))
    throw UserError("{}: dtype is {}: weights in 8-bit floats are not supported; wanted bfloat16, float16 or float32",
                    file_, hf_name(config.dtype));
  config.eos_token_id = end_ids(*json_, file_);
  auto id = [this](const char* key) -> std::optional<int32_t> {
    const nlohmann::json* value = find(key);
    if (value == nullptr || !value->is_number_integer()) return std::nullopt;
    return value->get<int32_t>();
  };
  config.bos_token_id = id("bos_token_id");
  config.pad_token_id = id("pad_token_id");
  const StoredForm form = stored_form(*json_, file_);
  if (const auto* stored = std::get_if<BitsandbytesStorage>(&form))
    config.quantisation = stored->format, config.in_floats = stored->in_floats;
  config.mxfp4 = std::holds_alternative<Mxfp4Storage>(form);
  if (const auto* groups = std::get_if<GroupStorage>(&form)) config.groups = *groups;
  if (const auto* float8 = std::get_if<Float8Storage>(&form)) config.float8 = *float8;
}

ConfigReader ConfigReader::inner(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_object())
    throw UserError("{}: '{}' is {}, wanted an object", file_, key, value == nullptr ? "missing" : value->dump());
  return ConfigReader(*value, file_ + " (" + key + ")");
}

RopeParameters ConfigReader::rope_settings(RopeParameters out) const {
  out.rope_theta = number("rope_theta", out.rope_theta);
  out.rope_type = text("rope_type", text("type", "default"));
  if (out.rope_type == "su") out.rope_type = "longrope";  // the original name of longrope
  out.partial_rotary_factor = number("partial_rotary_factor", out.partial_rotary_factor);
  out.factor = number("factor", 1);
  out.low_freq_factor = number("low_freq_factor", 1);
  out.high_freq_factor = number("high_freq_factor", 4);
  out.original_max_position_embeddings = integer("original_max_position_embeddings", 0);
  out.short_factor = numbers("short_factor");
  out.long_factor = numbers("long_factor");
  if (out.rope_type == "yarn") {
    out.beta_fast = number("beta_fast", 32), out.beta_slow = number("beta_slow", 1);
    out.truncate = flag("truncate", true);
  }
  static const std::set<std::string> kKnown{"default",  "dynamic",      "linear", "llama3",
                                            "longrope", "proportional", "yarn"};
  if (!kKnown.contains(out.rope_type))
    throw UserError("{}: rope_type '{}' is not implemented; wanted one of {}", file_, out.rope_type,
                    fmt::join(kKnown, ", "));
  if (!(out.rope_theta > 0)) throw UserError("{}: rope_theta is {}, wanted a number above 0", file_, out.rope_theta);
  if ((out.rope_type == "linear" || out.rope_type == "llama3" || out.rope_type == "dynamic") && !has("factor"))
    throw UserError("{}: rope_type {} needs 'factor'", file_, out.rope_type);
  if (!(out.factor > 0)) throw UserError("{}: factor is {}, wanted a number above 0", file_, out.factor);
  if (out.rope_type == "llama3" && out.original_max_position_embeddings == 0)
    throw UserError("{}: rope_type llama3 needs original_max_position_embeddings", file_);
  return out;
}

std::optional<RopeParameters> ConfigReader::local_rope(double default_theta) const {
  if (!has("rope_parameters") || !inner("rope_parameters").has("sliding_attention")) return std::nullopt;
  const ConfigReader settings = inner("rope_parameters").inner("sliding_attention");
  RopeParameters usual;
  usual.rope_theta = default_theta;
  RopeParameters local = settings.rope_settings(usual);
  if (local.rope_type == "longrope" || local.rope_type == "dynamic")
    throw UserError("{}: rope_type {} on layers with sliding attention is not implemented", file_, local.rope_type);
  if (local.rope_type == "yarn") finish_yarn(settings, local);
  return local;
}

// Computes the same as Transformers' _compute_yarn_parameters.
void ConfigReader::finish_yarn(const ConfigReader& settings, RopeParameters& rope) const {
  const int64_t longest = integer("max_position_embeddings", 0);
  int64_t& original = rope.original_max_position_embeddings;
  if (original == 0) original = longest;
  if (original == 0) throw UserError("{}: rope_type yarn needs original_max_position_embeddings", file_);
  if (!settings.has("factor")) rope.factor = static_cast<double>(longest) / static_cast<double>(original);
  const double mscale = settings.number("mscale", 0), all_dim = settings.number("mscale_all_dim", 0);
  auto scale = [&](double times) { return rope.factor <= 1 ? 1 : 0.1 * times * std::log(rope.factor) + 1; };
  const double usual = mscale != 0 && all_dim != 0 ? scale(mscale) / scale(all_dim) : scale(1);
  rope.attention_factor = settings.number("attention_factor", usual);
  rope.mscale_all_dim = all_dim;
}

void ConfigReader::require_rope() const {
  if (has("rope_parameters") || has("rope_scaling")) return;
  throw UserError(
      "{}: rope_parameters and rope_scaling are both missing, so it is not known whether rope is scaled; copy "
      "rope_parameters from the config.json of the original model, or set it to {{\"rope_type\": \"default\"}} for "
      "rope that is not scaled",
      file_);
}

RopeParameters ConfigReader::rope(double default_theta, double default_partial_factor) const {
  RopeParameters out;
  out.rope_theta = number("rope_theta", default_theta);
  out.partial_rotary_factor = number("partial_rotary_factor", default_partial_factor);
  if (!(out.rope_theta > 0)) throw UserError("{}: rope_theta is {}, wanted a number above 0", file_, out.rope_theta);
  const char* key = has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (has("rope_parameters") && has("rope_scaling") && *find("rope_parameters") != *find("rope_scaling"))
    throw UserError(
        "{}: rope_scaling and rope_parameters have different settings; write the fields of rope_scaling into "
        "rope_parameters, and remove rope_scaling",
        file_);
  if (!has(key)) return out;
  ConfigReader settings = inner(key);
  const bool by_kind = settings.has("full_attention");
  if (by_kind) settings = settings.inner("full_attention");
  out = settings.rope_settings(out);
  // As in Transformers, the number beside the settings wins, but settings for each kind of layer do not read it.
  if (!by_kind && (out.rope_type == "yarn" || out.rope_type == "llama3" || out.rope_type == "longrope"))
    out.original_max_position_embeddings =
        integer("original_max_position_embeddings", out.original_max_position_embeddings);
  if (out.rope_type == "yarn") finish_yarn(settings, out);
  if (out.rope_type == "dynamic") out.original_max_position_embeddings = integer("max_position_embeddings");
  if (out.rope_type != "longrope") return out;
  const int64_t longest = integer("max_position_embeddings");
  if (out.original_max_position_embeddings == 0) out.original_max_position_embeddings = longest;
  const auto original = static_cast<double>(out.original_max_position_embeddings);
  out.factor = settings.number("factor", static_cast<double>(longest) / original);
  const double usual = out.factor <= 1 ? 1 : std::sqrt(1 + std::log(out.factor) / std::log(original));
  out.attention_factor = settings.number("attention_factor", usual);
  return out;
}

std::vector<int64_t> ConfigReader::windows(int64_t layers, int64_t window,
                                           const std::function<bool(int64_t)>& slides) const {
  std::vector<int64_t> out;
  const nlohmann::json* types = find("layer_types");
  if (types == nullptr) {
    for (int64_t layer = 0; layer < layers; ++layer) out.push_back(slides(layer) ? window : 0);
    return out;
  }
  if (!types->is_array() || types->size() != static_cast<size_t>(layers)) refuse_layers("layer_types", layers);
  for (const nlohmann::json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      throw UserError("{}: 'layer_types' contains {}; only full_attention and sliding_attention are implemented", file_,
                      type.dump());
    out.push_back(type == "sliding_attention" ? window : 0);
  }
  return out;
}

std::vector<bool> ConfigReader::flags_by_layer(const std::string& key, int64_t layers) const {
  const nlohmann::json* list = find(key);
  std::vector<bool> out;
  if (list == nullptr) return out;
  if (!list->is_array() || list->size() < static_cast<size_t>(layers))
    throw UserError("{}: '{}' {}, wanted a list with at least {} elements, one for each layer (num_hidden_layers)",
                    file_, key, length_of(*list), layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const nlohmann::json& each = (*list)[static_cast<size_t>(layer)];
    if (!each.is_boolean() && each != 0 && each != 1)
      throw UserError("{}: '{}' contains {}; wanted 0 or 1", file_, key, each.dump());
    out.push_back(each == true || each == 1);
  }
  return out;
}

void ConfigReader::read_experts(ModelConfig& config, int64_t experts, int64_t per_token_by_default) const {
  config.num_experts = experts;
  config.has_balancing_loss = true;
  if (config.expert_size == 0) config.expert_size = config.intermediate_size;
  config.experts_per_token = integer("num_experts_per_tok", per_token_by_default);
  if (config.experts_per_token > experts)
    throw UserError("{}: num_experts_per_tok ({}) is more than the {} experts", file_, config.experts_per_token,
                    experts);
  if (flag("output_router_logits", false)) config.router_aux_loss_coef = number("router_aux_loss_coef", 0.001);
}

void ConfigReader::read_sparse_layers(ModelConfig& config) const {
  const int64_t step = integer("decoder_sparse_step", 1);
  const std::vector<double> dense = numbers("mlp_only_layers");
  LayerSet sparse;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if ((layer + 1) % step == 0 && std::ranges::find(dense, static_cast<double>(layer)) == dense.end())
      sparse.numbers.push_back(layer);
  sparse.all = sparse.count();
  if (sparse.count() == 0)
    throw UserError("{}: mlp_only_layers and decoder_sparse_step leave no layer with experts", file_);
  if (sparse.count() < config.num_hidden_layers) config.expert_layers = sparse;
}

std::vector<std::string> differing_settings(const ModelConfig& a, const ModelConfig& b) {
  // An empty list means the same value for all layers.
  const auto by_layer = [](auto list, int64_t layers, auto usual) {
    if (list.empty()) list.assign(static_cast<size_t>(layers), usual);
    return list;
  };
  const auto window = [&](const ModelConfig& c) { return by_layer(c.window, c.num_hidden_layers, int64_t{0}); };
  const auto rotates = [&](const ModelConfig& c) { return by_layer(c.rotates, c.num_hidden_layers, true); };
  const std::pair<bool, const char*> settings[] = {
      {a.rope == b.rope && a.local_rope == b.local_rope && rotates(a) == rotates(b), "rope_parameters"},
      {a.norm_eps == b.norm_eps, "rms_norm_eps"},
      {a.hidden_act == b.hidden_act, "hidden_act"},
      {window(a) == window(b) && a.attention_chunk == b.attention_chunk, "sliding_window"},
      {a.attention_scale == b.attention_scale && a.query_growth == b.query_growth, "scales of attention"},
      {a.embedding_scale == b.embedding_scale && a.residual_scale == b.residual_scale && a.logit_scale == b.logit_scale,
       "multipliers"},
      {a.attention_softcap == b.attention_softcap && a.logit_softcap == b.logit_softcap, "softcapping"},
      {a.experts_per_token == b.experts_per_token, "num_experts_per_tok"},
      {a.tie_word_embeddings == b.tie_word_embeddings, "tie_word_embeddings"}};
  std::vector<std::string> out;
  for (const auto& [same, name] : settings)
    if (!same) out.emplace_back(name);
  return out;
}

void ConfigReader::note_dropouts(ModelConfig& config, const std::vector<std::string>& keys) const {
  for (const std::string& key : keys)
    if (number(key, 0) != 0) config.dropouts.push_back(key);
}

}  // namespace fettle
