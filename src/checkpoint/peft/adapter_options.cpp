#include "checkpoint/peft/adapter_options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/load.h"
#include "models/layer_groups.h"

namespace fettle {

AdapterFolder open_adapter(const std::filesystem::path& folder) {
  return read_adapter(folder, {.dora = true, .modules_to_save = true, .target_parameters = true});
}

namespace {

// Throws UserError when the adapter's embedding or head has another number of rows than the model's. Such an adapter
// belongs to another vocabulary.
void check_rows(const Param& param, const TensorEntry& found, const std::string& file) {
  const bool table = param.role == Role::kTokenEmbedding || param.role == Role::kHead;
  if (!table || found.shape.rank() != 2 || found.shape.dims[0] == param.dims[0]) return;
  if (found.shape.dims[0] < param.dims[0])
    throw UserError(
        "{0}: '{1}' has {2} rows, but the model has {3} rows. The adapter was trained on a smaller vocabulary. If the "
        "recipe adds tokens (add_tokens, ...), add only those of the adapter. If it adds none, cut the base to {2} "
        "rows with Transformers (resize_token_embeddings({2}), save_pretrained), and set model_name_or_path to it",
        file, param.hf_name, found.shape.dims[0], param.dims[0]);
  throw UserError(
      "{}: '{}' has {} rows, but the model has {}: the adapter was trained with other tokens; set add_tokens, "
      "add_special_tokens or new_special_tokens_config to the values that it was trained with",
      file, param.hf_name, found.shape.dims[0], param.dims[0]);
}

// Throws UserError unless the adapter's copies of embedding and head are equal. The model has one table for both.
void check_tied(const AdapterFolder& adapter, const Model& model) {
  const std::string embedding = model.head().hf_name, head = tied_head(model);
  const TensorEntry *first = adapter.find(embedding, AdapterPart::kSaved),
                    *second = adapter.find(head, AdapterPart::kSaved);
  bool same = first != nullptr && second != nullptr && first->shape == second->shape;
  if (same)
    adapter.file.with_bytes(*first, [&](std::span<const std::byte> a) {
      adapter.file.with_bytes(*second, [&](std::span<const std::byte> b) { same = std::ranges::equal(a, b); });
    });
  if (!same)
    throw UserError(
        "{}: the model uses its embedding as its head (tie_word_embeddings), but the adapter does not have the "
        "same values for {} and {}; merge it with PEFT into a model with tie_word_embeddings: false",
        adapter.file.path().string(), embedding, head);
}

// Returns the LoRA tensors that the adapter has for the image or sound encoder. PEFT's all-linear adds them. Training
// on text leaves their lora_B zero, so they have no effect. Throws UserError if such a lora_B is not zero, because
// Fettle computes only the text model.
std::set<const TensorEntry*> find_carried(const AdapterFolder& adapter, const Model& model) {
  std::set<const TensorEntry*> out;
  for (const AdapterTensor& tensor : adapter.tensors) {
    if (tensor.part == AdapterPart::kSaved || !carries(*model.family, tensor.module + ".")) continue;
    out.insert(tensor.entry);
    if (tensor.part != AdapterPart::kLoraB) continue;
    const HostArray values = adapter.file.read(*tensor.entry).to(DType::kF32);
    if (std::ranges::any_of(values.as<float>(), [](float value) { return value != 0; }))
      throw UserError(
          "{}: '{}' belongs to the image or sound encoder and has trained LoRA weights, but Fettle computes only the "
          "text model; merge the adapter with PEFT",
          adapter.file.path().string(), tensor.module);
  }
  return out;
}

// Returns whether PEFT under Transformers 5 joins the LoRA weights of single experts when it loads an adapter of the
// family. For other families, it loads the adapter without these weights. Sources: PEFT's _convert_peft_config_moe;
// Transformers' _MODEL_TO_CONVERSION_PATTERN.
bool peft_joins_experts(const Family& family) {
  const std::string type = family.model_type;
  return family.mlp_is_experts_in_peft || type == "mixtral" || type == "minimax_m2";
}

// Throws UserError when the adapter has LoRA weights for each expert.
void refuse_single_experts(const AdapterFolder& adapter, const Model& model) {
  constexpr std::string_view kExperts = ".experts.";
  for (const AdapterTensor& tensor : adapter.tensors) {
    const size_t at = tensor.module.find(kExperts);
    if (at == std::string::npos || std::isdigit(static_cast<unsigned char>(tensor.module[at + kExperts.size()])) == 0)
      continue;
    throw UserError(
        "{}: '{}' has LoRA weights of its own, as PEFT wrote them under Transformers 4, but Fettle reads one pair of "
        "tensors for all experts of a layer; {}",
        adapter.file.path().string(), tensor.module,
        peft_joins_experts(*model.family)
            ? "load the adapter with PEFT under Transformers 5, which joins the pairs, and save it again"
            : "merge the adapter with PEFT under the version of Transformers 4 that trained it");
  }
}

// Returns the path of a module or parameter as the adapter's patterns see it. `entry` is a LoRA tensor of the same
// model part. Its name may begin in another way than Fettle's.
std::string path_in_file(const std::string& path, const TensorEntry& entry) {
  constexpr const char* kLayers = "layers.";
  const std::string name = entry.name.substr(adapter_key("").size());
  const size_t here = path.find(kLayers), there = name.find(kLayers);
  if (here == std::string::npos || there == std::string::npos) return path;
  return name.substr(0, there) + path.substr(here);
}

// Returns whether this version of PEFT writes the sides of experts in the order that Fettle reads: lora_A has the
// inputs of the weight, or with ExpertNames::swapped_lora the outputs. Source: PEFT's ParamWrapper. It gives lora_A dim
// 1 of the parameter; 0.19.0 gives it dim 2 if the module is marked as transposed, and later versions do so if the
// module is not marked.
bool has_known_sides(const std::string& peft_version, const ExpertNames& names) {
  std::array<int, 3> version{};
  if (std::sscanf(peft_version.c_str(), "%d.%d.%d", version.data(), &version[1], &version[2]) < 2) return true;
  const bool transposed = names.in_first && !names.swapped_lora;
  return version > std::array{0, 19, 0} || (transposed && version < std::array{0, 19, 0});
}

// Reads the options of one adapter for one model, in the order of the functions below. Remembers the tensors that it
// recognises.
class AdapterReading {
 public:
  AdapterReading(const AdapterFolder& adapter, const Model& model);

  LoraOptions read() {
    read_modules();
    read_parameters();
    read_saved();
    check_all_known();
    return std::move(options_);
  }

 private:
  // Reads from the tensors' names which linear modules have LoRA weights, and on which layers. Sets their common rank
  // and alpha.
  void read_modules();
  // Checks that all modules have LoRA weights on the same layers.
  void check_layers(const std::set<int64_t>& layers) const;
  // Reads the LoRA weights of experts and routers.
  void read_parameters();
  // Sets the factor of gate_up's rank. Throws UserError when a parameter has another rank or alpha of its own.
  void read_ranks_of_parameters();
  // Throws UserError when lora_A and lora_B of experts have each other's side of the weight, as older versions of PEFT
  // write them. The shapes show this unless all weights are square; then the version of PEFT decides.
  void check_sides() const;
  // Checks the modules that the adapter has in full (modules_to_save).
  void read_saved();
  void check_all_known();

  bool has_lora(const std::string& linear, int64_t layer) const {
    return adapter_.find(name_of_layer(model_.path_of(linear), layer), AdapterPart::kLoraA) != nullptr;
  }

  const AdapterFolder& adapter_;
  const Model& model_;
  const AdapterConfig& config_;
  const std::string file_;
  LoraOptions options_;
  std::set<const TensorEntry*> known_;
};

AdapterReading::AdapterReading(const AdapterFolder& adapter, const Model& model)
    : adapter_(adapter),
      model_(model),
      config_(adapter.config),
      file_(adapter.file.path().string()),
      options_{.rank = config_.r, .alpha = config_.lora_alpha, .rslora = config_.use_rslora} {
  options_.fan_in_fan_out = model.family->fan_in_fan_out;
  options_.dora = config_.use_dora;
  options_.saved = config_.modules_to_save;
  for (const std::string& table : table_names(model)) {
    const std::string weight = table + ".weight";
    const bool saved =
        std::ranges::any_of(options_.saved, [&](const std::string& name) { return saved_with(weight, name); });
    if (!saved && adapter.find(weight) != nullptr) options_.only_stored.push_back(last_part(table));
  }
  options_.saved.insert(options_.saved.end(), options_.only_stored.begin(), options_.only_stored.end());
  if (config_.task_type == "SEQ_CLS" && !model.classifies())
    throw UserError(
        "{}: this is a classifier's adapter (task_type SEQ_CLS); set stage: cls, or stage: rm if the adapter scores "
        "replies",
        file_);
  // PEFT ignores names in modules_to_save that match no module: a list may serve several models, and PEFT's own list
  // for classifiers has all names that a head may have.
  std::erase_if(options_.saved, [&](const std::string& name) {
    return !saved_with(tied_head(model), name) &&
           std::ranges::none_of(model.params, [&](const Param& param) { return saved_with(param.hf_name, name); });
  });
  refuse_single_experts(adapter, model);
}

void AdapterReading::read_modules() {
  bool whole = true;  // every module with LoRA weights has them on all its layers
  std::set<int64_t> layers_with;
  std::string first;  // the first module with LoRA weights; patterns may give all modules the same rank and alpha
  for (const std::string& linear : model_.linears()) {
    std::vector<int64_t> layers;
    const std::vector<int64_t> layers_of_module = model_.layers_of(linear);
    for (const int64_t layer : layers_of_module) {
      const std::string name = name_of_layer(model_.path_of(linear), layer);
      const TensorEntry* found = adapter_.find(name, AdapterPart::kLoraA);
      if (found == nullptr) continue;
      layers.push_back(layer);
      const std::string module = path_in_file(name, *found);
      if (first.empty()) {
        first = module;
        options_.rank = config_.rank(module);
        options_.alpha = config_.alpha(module);
      }
      if (config_.rank(module) != options_.rank || config_.alpha(module) != options_.alpha)
        throw UserError(
            "{}: its modules have different ranks or alphas, which is not supported (here: {} and {}); merge the "
            "adapter with PEFT",
            file_, first, module);
    }
    if (layers.empty()) continue;
    options_.modules.push_back(linear);
    whole = whole && layers == layers_of_module;
    layers_with.insert(layers.begin(), layers.end());
    for (const int64_t layer : layers)
      for (const AdapterPart part : {AdapterPart::kLoraA, AdapterPart::kLoraB, AdapterPart::kMagnitude})
        known_.insert(adapter_.find(name_of_layer(model_.path_of(linear), layer), part));
  }
  if (whole) return;
  check_layers(layers_with);
  options_.layers.assign(layers_with.begin(), layers_with.end());
}

void AdapterReading::check_layers(const std::set<int64_t>& layers) const {
  if (!has_one_kind(model_))
    throw UserError(
        "{}: only some layers have LoRA weights. This is not supported for {}, because its layers differ in kind; "
        "merge the adapter with PEFT",
        file_, model_.family->model_type);
  for (const std::string& linear : options_.modules)
    for (const int64_t layer : model_.layers_of(linear))
      if (layers.contains(layer) && !has_lora(linear, layer))
        throw UserError(
            "{}: {} and {} have LoRA weights on different layers, which is not supported; merge the adapter with "
            "PEFT",
            file_, options_.modules[0], linear);
}

void AdapterReading::read_parameters() {
  std::vector<std::string> parameters = config_.target_parameters;
  // If the router is a linear layer (Gemma 4), PEFT can also name the router in target_modules. The adapter's tensors
  // are the same in both cases.
  for (const Param& param : model_.params)
    if (param.role == Role::kRouter) {
      const std::string router = module_of(param.hf_name);
      if (adapter_.find(name_of_layer(router, param.layers.numbers.front()), AdapterPart::kLoraA) != nullptr)
        parameters.push_back(param.hf_name.substr(model_.family->layer_prefix.size()));
    }
  if (parameters.empty()) return;
  options_.parameters = expert_parameters(model_, parameters, file_);
  read_ranks_of_parameters();
  check_sides();
  if (!options_.layers.empty())
    throw UserError(
        "{}: experts have LoRA weights, and linear modules have LoRA weights on some layers only. Fettle does not "
        "support both in one adapter; merge the adapter with PEFT",
        file_);
  for (const Param& param : expert_lora_params(model_, options_))
    for (int64_t layer = 0; layer < param.layer_count(); ++layer)
      known_.insert(adapter_.find(param.stored_name(layer)));
}

void AdapterReading::read_ranks_of_parameters() {
  const std::vector<Param> of_experts = expert_lora_params(model_, options_);
  const TensorEntry* first = of_experts.empty() ? nullptr : adapter_.find(of_experts.front().stored_name(0));
  for (const auto& [part, parameter] : options_.parameters) {
    std::string path = name_of_layer(model_.family->layer_prefix + parameter, 0);
    if (first != nullptr) path = path_in_file(path, *first);
    const int64_t factor = config_.rank(path) / options_.rank;
    const bool gate_up = part == ExpertPart::kGateUp && model_.config.experts.gated();
    if (gate_up) options_.gate_up_factor = factor;
    if (config_.rank(path) != factor * options_.rank ||
        config_.alpha(path) != static_cast<double>(factor) * options_.alpha || (factor != 1 && !gate_up))
      throw UserError("{}: '{}' has its own rank or alpha, which is not supported; merge the adapter with PEFT", file_,
                      parameter);
  }
}

void AdapterReading::check_sides() const {
  const std::vector<Param> params = expert_lora_params(model_, options_);
  std::string square, swapped;
  for (size_t i = 0; i + 1 < params.size(); i += 2) {
    const Param &a = params[i], &b = params[i + 1];
    if (a.dims.size() < 3) continue;  // PEFT never swaps the sides of a router
    const TensorEntry *found_a = adapter_.find(a.stored_name(0)), *found_b = adapter_.find(b.stored_name(0));
    if (found_a == nullptr || found_b == nullptr) continue;
    const std::pair sides{found_a->shape.dims[1], found_b->shape.dims[0]}, wanted{a.dims[2], b.dims[0]};
    const bool same = wanted.first == wanted.second;
    if (sides == wanted && !same) return;  // PEFT treats all parameters of a module alike
    if (sides == std::pair{wanted.second, wanted.first})
      (same ? square : swapped) = module_of(module_of(a.stored_name(0)));
  }
  if (swapped.empty() && has_known_sides(config_.peft_version, model_.config.experts)) return;
  const std::string& name = swapped.empty() ? square : swapped;
  if (name.empty()) return;
  throw UserError(
      "{}: lora_A and lora_B of '{}' have each other's side of the experts' weights, as PEFT before 0.19.1 (or under "
      "Transformers 4) wrote them. The adapter was written by PEFT {}. Merge it with the versions of PEFT and "
      "Transformers that trained it",
      file_, name, config_.peft_version.empty() ? "of an unknown version" : config_.peft_version);
}

void AdapterReading::read_saved() {
  for (const Param& param : saved_params(model_, options_))
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string name = param.stored_name(i);
      const TensorEntry* found = adapter_.find(name);
      if (found == nullptr && saves_tied_head(model_, options_)) check_tied(adapter_, model_);
      if (found == nullptr)
        throw UserError("{}: modules_to_save names '{}', whose tensor is missing; save the adapter again", file_, name);
      check_rows(param, *found, file_);
      known_.insert(found);
    }
  if (saves_tied_head(model_, options_)) {
    check_tied(adapter_, model_);
    known_.insert(adapter_.find(tied_head(model_)));
  }
}

void AdapterReading::check_all_known() {
  if (!model_.family->carried.empty()) known_.merge(find_carried(adapter_, model_));
  const auto is_unknown = [&](const AdapterTensor& tensor) { return !known_.contains(tensor.entry); };
  const auto unknown = std::ranges::find_if(adapter_.tensors, is_unknown);
  if (unknown == adapter_.tensors.end()) return;
  throw UserError(
      "{}: {} of {} tensors belong neither to linear layers of the blocks nor to saved modules of this {} model; the "
      "first is '{}'. Is it another model's adapter? LoRA weights outside of the blocks (PEFT's all-linear adds them "
      "to a pooler) are not supported: merge the adapter with PEFT",
      file_, std::ranges::count_if(adapter_.tensors, is_unknown), adapter_.tensors.size(), model_.family->model_type,
      unknown->entry->name);
}

}  // namespace

LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model) {
  return AdapterReading(adapter, model).read();
}

}  // namespace fettle
