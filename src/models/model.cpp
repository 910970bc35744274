#include "models/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "config/nearest.h"
#include "data/classes/taught_labels.h"
#include "models/families/families.h"

namespace fettle {

const Tensor& Weights::at(const std::string& name) const {
  const auto at = entries_.find(name);
  internal_check(at != entries_.end(), "the program has no weight '{}'", name);
  return at->second.value;
}

const Tensor& Layer::operator[](const std::string& name) const {
  const auto at = weights.find(name);
  internal_check(at != weights.end(), "the layer has no weight '{}'", name);
  return at->second;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{llama_family(),
                                       mistral_family(),
                                       qwen2_family(),
                                       qwen3_family(),
                                       gemma_family(),
                                       gemma2_family(),
                                       gemma3_family(),
                                       phi3_family(),
                                       starcoder2_family(),
                                       gpt_bigcode_family(),
                                       gpt2_family(),
                                       baichuan_family(),
                                       mixtral_family(),
                                       qwen3_moe_family(),
                                       bert_family(),
                                       roberta_family(),
                                       xlm_roberta_family(),
                                       modernbert_family(),
                                       olmo2_family(),
                                       olmo3_family(),
                                       exaone4_family(),
                                       smollm3_family(),
                                       granite_family(),
                                       granitemoe_family(),
                                       seed_oss_family(),
                                       ernie4_5_family(),
                                       ernie4_5_moe_family(),
                                       glm_family(),
                                       glm4_family(),
                                       cohere2_family(),
                                       gpt_neox_family(),
                                       gpt_oss_family(),
                                       qwen2_moe_family(),
                                       glm4_moe_family(),
                                       deepseek_v3_family(),
                                       kimi_k2_family(),
                                       qwen3_5_text_family(),
                                       qwen3_5_family(),
                                       gemma3_wrapped_family(),
                                       ministral3_family(),
                                       mistral3_family(),
                                       qwen3_next_family(),
                                       qwen3_5_moe_text_family(),
                                       qwen3_5_moe_family(),
                                       deepseek_v2_family(),
                                       glm4_moe_lite_family(),
                                       minimax_m2_family(),
                                       gemma4_text_family(),
                                       gemma4_family(),
                                       gemma4_unified_text_family(),
                                       gemma4_unified_family(),
                                       llama4_text_family(),
                                       llama4_family(),
                                       lfm2_family(),
                                       lfm2_moe_family(),
                                       granite4_family(),
                                       falcon_h1_family(),
                                       nemotron_h_family(),
                                       phi_family()};
  return all;
}

namespace {

std::string model_type_of(const nlohmann::json& config) {
  const bool named = config.is_object() && config.contains("model_type") && config["model_type"].is_string();
  return named ? config["model_type"].get<std::string>() : "";
}

}  // namespace

const Family* find_family(const nlohmann::json& config) {
  const auto found = std::ranges::find(families(), model_type_of(config), &Family::model_type);
  return found == families().end() ? nullptr : &*found;
}

const Family& family_of(const nlohmann::json& config, const std::string& file) {
  if (const Family* family = find_family(config)) return *family;
  const std::string type = model_type_of(config);
  for (const auto& [part, reads] : {std::pair{"vision_config", "images"}, {"audio_config", "sound"}})
    if (config.is_object() && config.contains(part))
      throw UserError(
          "{}: model_type '{}' is not supported: the model reads {}, which Fettle does not; use a text model", file,
          type, reads);
  std::vector<std::string_view> known;
  for (const Family& family : families()) known.push_back(family.model_type);
  const auto near = nearest(type, known);
  throw UserError("{}: model_type '{}' is not supported{}; docs/models.md lists the families", file, type,
                  near ? fmt::format(" (the nearest name is '{}')", *near) : "");
}

std::vector<CacheArray> keys_and_values(const ModelConfig& c, const LayerSet& layers) {
  const Dims dims{1, -1, c.num_key_value_heads, c.head_dim};
  const LogicalAxes axes{"batch", "", "act_kv_heads", ""};
  return {{"keys", layers, dims, axes}, {"values", layers, dims, axes}};
}

Family without_classifier(Family family) {
  family.classifier.architecture = "";
  return family;
}

Family with_mlp_as_experts_in_peft(Family family) {
  family.mlp_is_experts_in_peft = true;
  return family;
}

bool carries(const Family& family, std::string_view tensor) {
  return std::ranges::any_of(family.carried, [&](const std::string& prefix) { return tensor.starts_with(prefix); });
}

bool is_of_later_layer(const Family& family, const ModelConfig& config, std::string_view tensor) {
  const std::string_view head = std::string_view(family.layer_prefix).substr(0, family.layer_prefix.find("{}"));
  if (!tensor.starts_with(head)) return false;
  int64_t layer = -1;
  std::from_chars(tensor.data() + head.size(), tensor.data() + tensor.size(), layer);
  return layer >= config.num_hidden_layers;
}

bool is_unused(const Family& family, const ModelConfig& config, std::string_view tensor) {
  if (is_of_later_layer(family, config, tensor)) return true;
  return family.unused && std::ranges::any_of(family.unused(config), [&](const auto& name) { return name == tensor; });
}

const Param& Model::param(const std::string& hf_name) const {
  const auto found = std::ranges::find(params, hf_name, &Param::hf_name);
  internal_check(found != params.end(), "no parameter '{}' in {}", hf_name, family->model_type);
  return *found;
}

std::vector<std::string> Model::linears() const {
  static const std::string kWeight = ".weight";
  std::vector<std::string> out;
  for (const Param& param : params) {
    if (param.role != Role::kLinear) continue;
    const size_t first = param.stacked() ? family->layer_prefix.size() : 0;
    const std::string name = param.hf_name.substr(first, param.hf_name.size() - first - kWeight.size());
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  }
  return out;
}

std::string Model::path_of(const std::string& linear) const {
  const bool outside = std::ranges::any_of(
      params, [&](const Param& param) { return !param.stacked() && param.hf_name == linear + ".weight"; });
  return outside ? linear : family->layer_prefix + linear;
}

std::vector<Param> Model::linear(const std::string& module) const {
  const std::string weight = path_of(module) + ".weight";
  std::vector<Param> out;
  for (const Param& param : params)
    if (param.hf_name == weight) out.push_back(param);
  internal_check(!out.empty(), "no linear layer '{}' in {}", module, family->model_type);
  return out;
}

std::vector<int64_t> Model::layers_of(const std::string& module) const {
  std::vector<int64_t> out;
  for (const Param& param : linear(module))
    out.insert(out.end(), param.layers.numbers.begin(), param.layers.numbers.end());
  if (out.empty()) return {0};
  std::ranges::sort(out);
  return out;
}

const Param& Model::head() const {
  const Role role = config.tie_word_embeddings ? Role::kTokenEmbedding : Role::kHead;
  const auto found = std::ranges::find(params, role, &Param::role);
  internal_check(found != params.end() && !classifies(), "this {} has no language-model head", family->model_type);
  return *found;
}

int64_t Model::parameters() const {
  int64_t total = 0;
  for (const Param& param : params) total += product(param.dims) * param.layer_count();
  return total;
}

namespace {

const std::string kClassifierArchitecture = "ForSequenceClassification";

std::string architecture_of(const nlohmann::json& config) {
  const auto names = config.find("architectures");
  const bool has = names != config.end() && names->is_array() && !names->empty() && names->front().is_string();
  return has ? names->front().get<std::string>() : "";
}

// Throws UserError when the model cannot be used as a classifier (if num_labels is above 0) or as a language model (if
// it is 0).
void check_use(const Family& family, const nlohmann::json& config, const std::string& file, int64_t num_labels) {
  if (num_labels > 0 && family.classifier.architecture.empty()) {
    std::vector<std::string> able;
    for (const Family& one : families())
      if (!one.classifier.architecture.empty()) able.push_back(one.model_type);
    throw UserError("{}: Transformers has no classifier for model_type {}; it has classifiers for {}", file,
                    family.model_type, fmt::join(able, ", "));
  }
  if (num_labels > 0) return;
  if (family.encoder)
    throw UserError("{}: {} is an encoder, which cannot generate text; set stage: cls to train it as a classifier",
                    file, family.model_type);
  if (read_taught_labels(config, file).count() > 0)
    throw UserError(
        "{}: the model is a classifier ({}) without a head for text; set stage: cls (stage: rm for a reward model), or "
        "use the language model from which it was trained",
        file, architecture_of(config));
}

// Replaces the language model's head by a classifier's.
void make_classifier(Model& model, int64_t num_labels) {
  model.config.num_labels = num_labels;
  model.config.tie_word_embeddings = false;
  const ClassifierHead& head = model.family->classifier;
  const int64_t d = model.config.hidden_size;
  std::erase_if(model.params,
                [](const Param& param) { return param.role == Role::kHead || param.role == Role::kHeadBias; });
  for (const std::string& module : head.modules) {
    const bool last = module == head.modules.back();
    const int64_t out = last ? num_labels : d;
    if (last && !head.norm.empty()) {
      model.params.push_back({.hf_name = head.norm + ".weight",
                              .dims = {d},
                              .axes = {"norm"},
                              .role = Role::kClassifierNorm,
                              .init = Init::kOnes});
      if (model.config.norm == Norm::kLayer)
        model.params.push_back({.hf_name = head.norm + ".bias",
                                .dims = {d},
                                .axes = {"norm"},
                                .role = Role::kClassifierNorm,
                                .init = Init::kZeros,
                                .norm_offset = true});
    }
    model.params.push_back(
        {.hf_name = module + ".weight", .dims = {out, d}, .axes = {"", "embed"}, .role = Role::kClassifier});
    if (head.bias && (last || model.config.classifier.inner_bias))
      model.params.push_back({.hf_name = module + ".bias",
                              .dims = {out},
                              .axes = {"norm"},
                              .role = Role::kClassifierBias,
                              .init = Init::kZeros});
  }
}

// Throws UserError when the router's groups of experts do not fit the experts.
void check_groups(const ModelConfig& c, const std::string& file) {
  const Routing& routing = c.routing;
  if (routing.groups == 1) return;
  const int64_t least = routing.best_two ? 2 : 1, size = c.num_experts / routing.groups;
  if (c.num_experts % routing.groups != 0 || size < least)
    throw UserError(
        "{}: n_group is {}, but the model has {} experts; wanted groups of equal size, with at least {} experts each",
        file, routing.groups, c.num_experts, least);
  if (routing.top_groups > routing.groups)
    throw UserError("{}: topk_group ({}) is more than n_group ({})", file, routing.top_groups, routing.groups);
  if (c.experts_per_token > routing.top_groups * size)
    throw UserError("{}: num_experts_per_tok ({}) is more than the {} experts in the chosen groups (topk_group: {})",
                    file, c.experts_per_token, routing.top_groups * size, routing.top_groups);
}

// Refuses settings that change the computation of most families and that no family reads: attention to later tokens,
// and sizes that differ between layers (only Gemma 4 reads them).
void check_unread(const Model& model, const ConfigReader& outer) {
  for (const ConfigReader& r :
       outer.has("text_config") ? std::vector{outer, outer.inner("text_config")} : std::vector{outer}) {
    if (model.config.causal) r.refuse_unless("is_causal", true);
    if (!model.family->model_type.starts_with("gemma4")) r.refuse_unless("per_layer_config", nlohmann::json::object());
  }
}

}  // namespace

Model make_model(const nlohmann::json& config, const std::string& file, int64_t num_labels) {
  Model model{&family_of(config, file), {}, {}};
  check_use(*model.family, config, file, num_labels);
  model.config = model.family->read(ConfigReader(config, file));
  check_unread(model, ConfigReader(config, file));
  check_groups(model.config, file);
  model.params = model.family->params(model.config);
  if (num_labels > 0) make_classifier(model, num_labels);
  return model;
}

}  // namespace fettle
