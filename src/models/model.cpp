#include "models/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/classes/taught_labels.h"
#include "models/families/families.h"

namespace fettle {

Dims WeightRow::stored_dims() const {
  Dims out = dims;
  if (of_experts()) out.erase(out.begin());
  if (fused < 0) return out;
  out[fused] *= out[fused + 1];
  out.erase(out.begin() + fused + 1);
  return out;
}

bool WeightRow::of_experts() const {
  const size_t layer = name.find("{}");
  return layer != std::string::npos && name.find("{}", layer + 2) != std::string::npos;
}

int64_t WeightRow::stored_count(const ModelConfig& config) const {
  return layers_held(*this, config) * (of_experts() ? dims[0] : 1);
}

std::string WeightRow::stored_name(int64_t index) const {
  std::string out = name;
  auto fill = [&](int64_t number) {
    if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, std::to_string(number));
  };
  fill(first_layer + (of_experts() ? index / dims[0] : index));
  if (of_experts()) fill(index % dims[0]);
  return out;
}

const Tensor& Layer::operator[](const std::string& name) const {
  const auto at = weights.find(name);
  internal_check(at != weights.end(), "the layer has no weight '{}'", name);
  return at->second;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{llama_family(),       mistral_family(), qwen2_family(),    qwen3_family(),
                                       gemma2_family(),      gemma3_family(),  phi3_family(),     starcoder2_family(),
                                       gpt_bigcode_family(), gpt2_family(),    baichuan_family(), mixtral_family(),
                                       qwen3_moe_family(),   bert_family(),    roberta_family(),  xlm_roberta_family()};
  return all;
}

const Family& family_of(const nlohmann::json& config, const std::string& file) {
  std::vector<std::string> known;
  const std::string type = config.is_object() && config.contains("model_type") && config["model_type"].is_string()
                               ? config["model_type"].get<std::string>()
                               : "";
  for (const Family& family : families()) {
    if (family.model_type == type) return family;
    known.push_back(family.model_type);
  }
  throw UserError("{}: model_type '{}' is not supported; supported are {}", file, type, fmt::join(known, ", "));
}

const WeightRow& Model::row(const std::string& name) const {
  for (const WeightRow& row : weights)
    if (row.name == name) return row;
  throw InternalError("no weight '{}' in {}", name, family->model_type);
}

bool Model::is_linear(const WeightRow& row) const {
  return std::ranges::any_of(family->linears, [&](const std::string& linear) {
    return row.name == family->layer_prefix + linear + ".weight";
  });
}

bool Model::is_embedding(const WeightRow& row) const {
  return row.name == family->embedding ||
         std::ranges::find(family->other_embeddings, row.name) != family->other_embeddings.end();
}

int64_t Model::parameters() const {
  int64_t total = 0;
  for (const WeightRow& row : weights) total += product(row.dims) * (row.stacked() ? config.num_hidden_layers : 1);
  return total;
}

namespace {

const std::string kClassifierArchitecture = "ForSequenceClassification";

std::string architecture_of(const nlohmann::json& config) {
  const auto names = config.find("architectures");
  const bool has = names != config.end() && names->is_array() && !names->empty() && names->front().is_string();
  return has ? names->front().get<std::string>() : "";
}

// Refuses what the family does not do.
void check_use(const Family& family, const nlohmann::json& config, const std::string& file, int64_t num_labels) {
  if (num_labels > 0 && family.classifier.architecture.empty()) {
    std::vector<std::string> able;
    for (const Family& one : families())
      if (!one.classifier.architecture.empty()) able.push_back(one.model_type);
    throw UserError("{}: {} has no classifier in Transformers; those that have are {}", file, family.model_type,
                    fmt::join(able, ", "));
  }
  if (num_labels > 0) return;
  if (family.encoder)
    throw UserError("{}: {} is an encoder, which writes no text; it learns labels of texts: set stage: cls", file,
                    family.model_type);
  if (read_taught_labels(config, file).count() > 0)
    throw UserError(
        "{}: the model is a classifier ({}) without a head for text; set stage: cls, or rm for one that scores "
        "replies, or take the model that it was made of",
        file, architecture_of(config));
}

// The head's rows in the place of the language model's.
void make_classifier(Model& model, int64_t num_labels) {
  model.config.num_labels = num_labels;
  model.config.tie_word_embeddings = false;
  const ClassifierHead& head = model.family->classifier;
  const int64_t d = model.config.hidden_size;
  std::erase_if(model.weights, [&](const WeightRow& row) { return row.name == model.family->head; });
  for (const std::string& module : head.modules) {
    const int64_t out = module == head.modules.back() ? num_labels : d;
    model.weights.push_back({.name = module + ".weight", .dims = {out, d}, .axes = {"", "embed"}, .head = true});
    if (head.bias)
      model.weights.push_back(
          {.name = module + ".bias", .dims = {out}, .axes = {"norm"}, .init = Init::kZeros, .head = true});
  }
}

}  // namespace

Model make_model(const nlohmann::json& config, const std::string& file, int64_t num_labels) {
  Model model{&family_of(config, file), {}, {}};
  check_use(*model.family, config, file, num_labels);
  model.config = model.family->read(ConfigReader(config, file));
  model.weights = model.family->weights(model.config);
  if (num_labels > 0) make_classifier(model, num_labels);
  return model;
}

std::string stack_name(const WeightRow& row) {
  return row.layers == 0 ? row.name : fmt::format("{}[{}:{}]", row.name, row.first_layer, row.first_layer + row.layers);
}

int64_t layers_held(const WeightRow& row, const ModelConfig& config) {
  return !row.stacked() ? 1 : row.layers > 0 ? row.layers : config.num_hidden_layers;
}

Shape stacked_shape(const WeightRow& row, const ModelConfig& config, DType dtype) {
  Shape shape{dtype, row.dims};
  if (row.stacked()) shape.dims.insert(shape.dims.begin(), layers_held(row, config));
  return shape;
}

LogicalAxes stacked_axes(const WeightRow& row) {
  LogicalAxes axes = row.axes;
  if (row.stacked()) axes.insert(axes.begin(), "layers");
  return axes;
}

}  // namespace fettle
