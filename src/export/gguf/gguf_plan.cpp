#include "export/gguf/gguf_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/json_text.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/mxfp4_codes.h"
#include "checkpoint/gguf/places.h"
#include "checkpoint/gguf/write/config_check.h"
#include "checkpoint/gguf/write/tokenizer_metadata.h"
#include "export/gguf/model_card.h"

namespace fettle {
namespace {

constexpr int64_t kQuantisationVersion = 2;

GgufTensor as_f32(const std::string& name, const Dims& dims) {
  const BlockType* type = find_block_type("F32");
  return {name, dims, type, 0, product(dims) * type->bytes};
}

// Sets `read_as` and `place`. Gets them from the code that reads GGUF files, so writing is the inverse of reading.
void find_place(const GgufPlaces& places, PlannedTensor& tensor) {
  std::vector<TensorEntry> entries;
  places.add(as_f32(tensor.name, tensor.dims), entries);
  internal_check(entries.size() == tensor.parts.size(), "'{}' has {} parts, but {} are read", tensor.name,
                 tensor.parts.size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Dims wanted = tensor.part_dims(i);
    internal_check(entries[i].shape.dims == wanted, "'{}' is read as {}, not {}", tensor.name,
                   to_string(entries[i].shape.dims), to_string(wanted));
    tensor.read_as.push_back(entries[i].name);
  }
  tensor.place = entries.front();
}

std::vector<PlannedTensor> plan_tensors(const GgufPlaces& places, const BaseTensors& base, const std::string& model) {
  std::vector<PlannedTensor> planned;
  std::map<std::string, size_t> index;
  std::vector<std::map<int64_t, const BaseTensor*>> experts;  // keyed by expert; one map for each planned tensor
  for (const BaseTensor& tensor : base.all()) {
    const std::vector<GgufTarget> targets = places.find(tensor.param);
    if (targets.empty())
      throw UserError(
          "{}: llama.cpp has no name for the tensor '{}'; export the model as safetensors (without export_gguf)", model,
          tensor.param);
    for (const GgufTarget& target : targets) {
      const auto [at, is_new] = index.emplace(target.tensor, planned.size());
      if (is_new) {
        planned.push_back({target.tensor, places.stored_dims(target, tensor.param, tensor.shape.dims), {}, {}, {}, {}});
        planned.back().pieces = target.pieces;
        experts.emplace_back();
      }
      internal_check(is_new || target.expert, "two tensors are written as '{}'", target.tensor);
      experts[at->second].emplace(target.expert.value_or(0), &tensor);
    }
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    PlannedTensor& tensor = planned[i];
    for (const auto& [expert, part] : experts[i]) {
      internal_check(expert == static_cast<int64_t>(tensor.parts.size()), "'{}' lacks expert {}", tensor.name,
                     tensor.parts.size());
      tensor.parts.push_back(part);
    }
    if (!tensor.pieces.empty())
      tensor.parts.assign(tensor.pieces.size(), tensor.parts.front());
    else if (places.find(tensor.parts.front()->param).front().expert)
      tensor.dims.insert(tensor.dims.begin(), static_cast<int64_t>(tensor.parts.size()));
    find_place(places, tensor);
  }
  return planned;
}

// Returns the numbers of the layers with one of these tensors, in ascending order.
std::vector<int64_t> layers_with(const std::vector<PlannedTensor>& tensors, const std::vector<std::string>& names) {
  std::set<int64_t> layers;
  for (const PlannedTensor& tensor : tensors)
    for (const std::string& name : names)
      if (tensor.name.starts_with("blk.") && tensor.name.ends_with("." + name))
        layers.insert(std::atoll(tensor.name.c_str() + 4));
  return {layers.begin(), layers.end()};
}

// Returns the model's size, such as "1.7B". For a mixture of experts, returns for example "8x7B": one expert and all
// weights outside the experts have 7B values.
std::string size_label(const std::vector<PlannedTensor>& tensors, const std::vector<GgufTable>& tables) {
  double count = 0;
  int64_t experts = 0;
  for (const GgufTable& table : tables) count += static_cast<double>(table.values.size());
  for (const PlannedTensor& tensor : tensors) {
    // Biases of experts have 2 dims.
    const bool of_experts = tensor.name.find("_exps.") != std::string::npos && tensor.dims.size() > 2;
    if (of_experts) experts = tensor.dims.front();
    count += static_cast<double>(product(tensor.dims)) / static_cast<double>(of_experts ? tensor.dims.front() : 1);
  }
  const auto [unit, letter] = count > 1e12  ? std::pair{1e12, 'T'}
                              : count > 1e9 ? std::pair{1e9, 'B'}
                              : count > 1e6 ? std::pair{1e6, 'M'}
                                            : std::pair{1e3, 'K'};
  const double scaled = count / unit;
  const int digits = std::nearbyint(scaled) >= 10 ? 0 : std::nearbyint(scaled) >= 1 ? 1 : 2;
  const std::string size = fmt::format("{:.{}f}{}", scaled, digits, letter);
  return experts > 0 ? fmt::format("{}x{}", experts, size) : size;
}

void set_sampling(const nlohmann::json& generation, GgufMetadata& metadata) {
  if (!generation.is_object() || !json_value(generation, "do_sample", true)) return;
  for (const auto& [field, key] : {std::pair{"top_p", "top_p"},
                                   {"min_p", "min_p"},
                                   {"temperature", "temp"},
                                   {"repetition_penalty", "penalty_repeat"}})
    if (generation.contains(field) && generation[field].is_number())
      metadata.set_number(std::string("general.sampling.") + key, generation[field].get<double>());
  if (generation.contains("top_k") && generation["top_k"].is_number_integer())
    metadata.set("general.sampling.top_k", generation["top_k"].get<int32_t>());
}

}  // namespace

GgufMetadata GgufPlan::metadata_of(const GgufFileType& type) const {
  GgufMetadata out = metadata;
  out.set_integer("general.file_type", type.number);
  out.set_integer("general.quantization_version", kQuantisationVersion);
  return out;
}

void GgufPlan::keep_codes(const AdapterMerge* merge) {
  for (PlannedTensor& tensor : tensors) {
    const BaseTensor& base = *tensor.parts.front();
    const bool changes = merge != nullptr && (merge->adds_to(base.param) || merge->saved(base.param));
    tensor.keeps_codes = !changes && !tensor.pieces.empty() && has_mxfp4_codes(*base.stored.entry);
  }
}

const BlockType& GgufPlan::type_of(const PlannedTensor& tensor, const GgufFileType& type) const {
  return tensor.keeps_codes ? *find_block_type("MXFP4") : type_in_file(type, tensor.name, tensor.dims, sizes);
}

std::vector<GgufTensor> GgufPlan::tensors_of(const GgufFileType& type) const {
  std::vector<GgufTensor> out;
  for (const GgufTable& table : tables)
    out.push_back(as_f32(table.tensor, {static_cast<int64_t>(table.values.size())}));
  for (const PlannedTensor& tensor : tensors) out.push_back({tensor.name, tensor.dims, &type_of(tensor, type), 0, 0});
  return out;
}

GgufPlan plan_gguf(const ModelRepository& base, const Model& model, const BaseTensors& tensors, const GgufNames& names,
                   const std::filesystem::path& texts, const std::filesystem::path& scratch) {
  const nlohmann::json& json = text_level(base.config());
  const ModelConfig& config = model.config;
  const GgufFamily& family = gguf_family_for(json_value(json, "model_type", config.model_type), config, names.model);
  GgufPlan plan{GgufMetadata(std::string(family.architecture)), {}, {}, {}};
  GgufMetadata& metadata = plan.metadata;
  const std::filesystem::path settings = texts / "generation_config.json";
  const nlohmann::json generation = std::filesystem::exists(settings) ? read_json_file(settings) : nlohmann::json();
  metadata.set("general.type", std::string("model"));
  set_sampling(generation, metadata);
  metadata.set("general.name", names.title);
  if (!names.base.empty()) {
    metadata.set_integer("general.base_model.count", 1);
    metadata.set("general.base_model.0.name", names.base);
  }
  plan.tables = set_config_metadata(family, config, json, metadata);
  GgufHeads heads{.heads = config.num_attention_heads, .kv_heads = config.num_key_value_heads};
  heads.shared_size = config.intermediate_size, heads.head_dim = config.head_dim;
  if (config.mamba2) heads.groups = config.mamba2->groups;
  if (const auto& net = config.delta_net)
    heads.groups = net->key_heads, heads.values = net->value_heads, heads.key_dim = net->key_dim,
    heads.value_dim = net->value_dim;
  heads.experts = config.num_experts, heads.expert_size = config.expert_size, heads.width = config.hidden_size;
  if (const auto& latent = config.latent) heads.plain_dim = latent->plain_dim, heads.value_dim = latent->value_dim;
  const GgufPlaces places(family, heads, names.model);
  plan.tensors = plan_tensors(places, tensors, names.model);
  const auto head = std::ranges::find(model.params, Role::kHead, &Param::role);
  for (PlannedTensor& tensor : plan.tensors) {
    const std::string& param = tensor.parts.front()->param;
    tensor.factors = folded_factors(config, param);
    tensor.unit_rows = config.normalised_head && head != model.params.end() && param == head->hf_name;
  }
  metadata.set("general.size_label", size_label(plan.tensors, plan.tables));
  set_card_metadata(texts, metadata);

  plan.sizes = {.layers = config.num_hidden_layers, .experts = config.num_experts, .tied = config.tie_word_embeddings};
  plan.sizes.value_layers = layers_with(plan.tensors, {"attn_v.weight", "attn_qkv.weight"});
  const bool attends_first = !plan.sizes.value_layers.empty() && plan.sizes.value_layers[0] == 0;
  plan.sizes.queries_per_key = attends_first ? config.num_attention_heads / config.num_key_value_heads : 0;
  plan.sizes.down_layers = layers_with(plan.tensors, {"ffn_down.weight"});
  plan.sizes.is_70b = config.num_hidden_layers == 80 &&
                      ((family.architecture == "llama" && config.num_attention_heads != config.num_key_value_heads) ||
                       family.architecture == "qwen2");
  std::vector<GgufTensor> written;
  for (const PlannedTensor& tensor : plan.tensors) written.push_back(as_f32(tensor.name, tensor.dims));
  set_tokenizer_metadata(texts, config.vocab_size, json, generation, metadata);
  check_expressible(family, metadata, plan.tables, std::move(written), config, names.model);
  check_tokenizer(texts, metadata, scratch);
  return plan;
}

}  // namespace fettle
