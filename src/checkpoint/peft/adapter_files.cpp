#include "checkpoint/peft/adapter_files.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "adapters/lora.h"
#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/saved/result_folder.h"
#include "checkpoint/torch/torch_file.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;
constexpr std::string_view kModulePrefix = "base_model.model.";
const char* const kConfigFile = "adapter_config.json";
const char* const kWeightsFile = "adapter_model.safetensors";
const char* const kOlderWeightsFile = "adapter_model.bin";

std::string_view suffix(AdapterPart part) {
  switch (part) {
    case AdapterPart::kLoraA: return ".lora_A.weight";
    case AdapterPart::kLoraB: return ".lora_B.weight";
    case AdapterPart::kMagnitude: return ".lora_magnitude_vector";
    case AdapterPart::kSaved: return "";
  }
  return "";
}

template <typename T>
T by_pattern(const std::vector<std::pair<PathPattern, T>>& patterns, std::string_view path, T otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (pattern.matches(path)) return value;
  return otherwise;
}

bool changes_nothing(const OrderedJson& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty()) || value == "";
}

// Reads fields of adapter_config.json and remembers which ones it read.
class AdapterFields {
 public:
  AdapterFields(fs::path path, const OrderedJson& fields) : path_(std::move(path)), fields_(fields) {}

  // Returns nullptr when the field is missing or null.
  const OrderedJson* field(const std::string& name) {
    seen_.insert(name);
    const auto found = fields_.find(name);
    return found == fields_.end() || found->is_null() ? nullptr : &*found;
  }
  template <typename T>
  void read(const std::string& name, T& into, std::string_view wanted) {
    const OrderedJson* value = field(name);
    if (value == nullptr) return;
    const bool fits = std::is_same_v<T, bool>          ? value->is_boolean()
                      : std::is_same_v<T, int64_t>     ? value->is_number_integer()
                      : std::is_same_v<T, double>      ? value->is_number()
                      : std::is_same_v<T, std::string> ? value->is_string()
                                                       : value->is_array();
    if (!fits) refuse_value(name, wanted);
    try {
      into = value->get<T>();
    } catch (const OrderedJson::exception&) {
      refuse_value(name, wanted);
    }
  }
  template <typename T>
  void read_patterns(const std::string& name, std::vector<std::pair<PathPattern, T>>& into) {
    const OrderedJson* value = field(name);
    if (value == nullptr) return;
    if (!value->is_object()) refuse_value(name, "an object");
    for (const auto& [text, number] : value->items()) {
      if (!(std::is_same_v<T, int64_t> ? number.is_number_integer() : number.is_number()))
        refuse_value(name, "an object whose values are numbers");
      PathPattern pattern(text);
      if (!pattern.is_expression())
        throw UserError("{}: '{}' has the pattern '{}', which is not a regular expression", path_.string(), name, text);
      into.emplace_back(std::move(pattern), number.template get<T>());
    }
  }
  [[noreturn]] void refuse_value(const std::string& name, std::string_view wanted) const {
    throw UserError("{}: '{}' is {}, wanted {}", path_.string(), name, fields_.at(name).dump(), wanted);
  }
  // Refuses a PEFT feature that Fettle lacks.
  [[noreturn]] void refuse_feature(const std::string& name) const {
    throw UserError(
        "{}: '{}' is {}, which Fettle cannot apply, and ignoring it would change the results; merge the adapter "
        "into its base with PEFT and use the merged model",
        path_.string(), name, fields_.at(name).dump());
  }
  // Throws when a field that was not read has a value that could change results.
  void finish() const {
    for (const auto& [name, value] : fields_.items())
      if (seen_.count(name) == 0 && !changes_nothing(value)) refuse_feature(name);
  }

 private:
  fs::path path_;
  const OrderedJson& fields_;
  std::set<std::string> seen_;
};

// Throws UserError if the initialisation of A and B also changed the base weights. PEFT repeats that change when it
// loads the adapter, but Fettle cannot.
void check_initialisation(AdapterFields& reader) {
  const OrderedJson* value = reader.field("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  static const std::set<std::string> kBaseUnchanged{"gaussian", "orthogonal", "eva"};
  if (!value->is_string() || kBaseUnchanged.count(value->get<std::string>()) == 0)
    reader.refuse_feature("init_lora_weights");
}

// Divides a parameter's name: "q_proj.lora_A.weight" gives "q_proj" and kLoraA.
std::pair<std::string_view, AdapterPart> module_and_part(std::string_view name) {
  for (const AdapterPart part : {AdapterPart::kLoraA, AdapterPart::kLoraB, AdapterPart::kMagnitude})
    if (name.ends_with(suffix(part))) return {name.substr(0, name.size() - suffix(part).size()), part};
  return {name, AdapterPart::kSaved};
}

// Returns the other names that a module of a model with images may have in an adapter: the name in Transformers before
// 4.52 (for Llama 4 also now), and the name in the class for text only, as which AutoModelForCausalLM loads some
// models.
std::vector<std::string> other_names(std::string_view module) {
  constexpr std::string_view kWhole = "model.language_model.", kWrapped = "language_model.", kText = "model.";
  const auto replaced = [&](std::string_view prefix, std::string_view by) {
    return std::string(by) + std::string(module.substr(prefix.size()));
  };
  if (module.starts_with(kWhole)) return {replaced(kWhole, "language_model.model."), replaced(kWhole, kText)};
  if (module.starts_with(kWrapped)) return {replaced(kWrapped, "")};
  return module.starts_with("lm_head") ? std::vector{replaced("", kWrapped)} : std::vector<std::string>();
}

// Returns whether modules_to_save selects the tensor.
bool is_saved(const AdapterConfig& config, std::string_view tensor) {
  return std::ranges::any_of(config.modules_to_save,
                             [&](const std::string& module) { return saved_with(tensor, module); });
}

// Returns whether the tensor is a copy in PEFT's wrapper of a saved module: "<module>.original_module.weight" has the
// base's values, and "<module>.modules_to_save.weight" repeats "<module>.weight". PEFT stores both beside
// "<module>.weight" if the vocabulary was resized.
bool is_copy_of_wrapper(const TensorFile& file, const AdapterConfig& config, const std::string& tensor) {
  return std::ranges::any_of(std::vector<std::string>{".original_module.", ".modules_to_save."},
                             [&](const std::string& wrapper) {
                               const size_t at = tensor.find(wrapper);
                               if (at == std::string::npos) return false;
                               std::string plain = tensor;
                               plain.replace(at, wrapper.size(), ".");
                               return is_saved(config, plain) && file.find(plain) != nullptr;
                             });
}

// Sorts an adapter's tensors by module and part. Throws UserError on an unknown key. If `tables`, a weight or bias
// that modules_to_save does not name is accepted: it may belong to a table that is only stored.
std::vector<AdapterTensor> name_tensors(const TensorFile& file, const AdapterConfig& config, bool tables) {
  std::vector<AdapterTensor> tensors;
  for (const TensorEntry& entry : file.entries()) {
    if (is_copy_of_wrapper(file, config, entry.name)) continue;
    std::string_view name = entry.name;
    const auto refuse = [&](std::string_view why) {
      throw UserError("{}: tensor '{}' {}; merge the adapter into its base with PEFT and use the merged model",
                      file.path().string(), entry.name, why);
    };
    if (!name.starts_with(kModulePrefix)) refuse("does not start with 'base_model.model.'");
    name.remove_prefix(kModulePrefix.size());
    if (!is_float(entry.shape.dtype)) refuse("is not a float tensor");
    const auto [module, part] = module_and_part(name);
    const bool of_table = tables && (name.ends_with(".weight") || name.ends_with(".bias")) &&
                          name.find(".lora_") == std::string_view::npos;
    if (part == AdapterPart::kSaved && !of_table && !is_saved(config, name))
      refuse("is neither a LoRA weight nor part of modules_to_save");
    tensors.push_back({std::string(module), part, &entry});
  }
  std::sort(tensors.begin(), tensors.end(), [](const AdapterTensor& a, const AdapterTensor& b) {
    return std::pair(std::string_view(a.module), a.part) < std::pair(std::string_view(b.module), b.part);
  });
  return tensors;
}

// Returns whether the module's LoRA weights belong to a parameter of experts.
bool of_parameter(const AdapterConfig& config, std::string_view module) {
  while (module.ends_with(".base_layer")) module.remove_suffix(std::string_view(".base_layer").size());
  return std::any_of(config.target_parameters.begin(), config.target_parameters.end(), [&](const std::string& target) {
    const std::string holder = target.substr(0, target.rfind('.') == std::string::npos ? 0 : target.rfind('.'));
    return holder.empty() || module == holder || module.ends_with("." + holder);
  });
}

// Checks that A [r, in] and B [out, r] are present and have the config's rank, and that DoRA has a magnitude [out]. For
// E experts, A is [E * r, in] and B is [out, r * E]; adapter_config.json does not state E.
void check_module(const AdapterFolder& adapter, const std::string& module) {
  const TensorEntry* a = adapter.find(module, AdapterPart::kLoraA);
  const TensorEntry* b = adapter.find(module, AdapterPart::kLoraB);
  const TensorEntry* magnitude = adapter.find(module, AdapterPart::kMagnitude);
  const std::string path = adapter.file.path().string();
  if (a == nullptr || b == nullptr)
    throw UserError("{}: '{}' has no {}; the file is incomplete; save the adapter again", path, module,
                    a == nullptr ? "lora_A" : "lora_B");
  if (adapter.find(module + ".weight", AdapterPart::kSaved) != nullptr)
    throw UserError(
        "{}: '{}' has LoRA weights and is also in modules_to_save, but PEFT applies only one of them; remove it from "
        "modules_to_save or target_modules and train the adapter again",
        path, module);
  const int64_t rank = adapter.config.rank(module);
  const bool both = a->shape.rank() == 2 && b->shape.rank() == 2 && a->shape.dims[0] == b->shape.dims[1];
  const int64_t experts = both && of_parameter(adapter.config, module) ? a->shape.dims[0] / rank : 1;
  if (!both || experts < 1 || a->shape.dims[0] != experts * rank)
    throw UserError("{}: '{}' has lora_A {} and lora_B {}, wanted [{}, in] and [out, {}] for the rank in {}", path,
                    module, a->shape.to_string(), b->shape.to_string(), rank, rank, kConfigFile);
  if ((magnitude != nullptr) != adapter.config.use_dora)
    throw UserError("{}: '{}' has {} lora_magnitude_vector but use_dora is {} in {}", path, module,
                    magnitude == nullptr ? "no" : "a", adapter.config.use_dora, kConfigFile);
  if (magnitude != nullptr && magnitude->shape.elements() != b->shape.dims[0])
    throw UserError("{}: '{}' has a lora_magnitude_vector {}, wanted [{}]", path, module, magnitude->shape.to_string(),
                    b->shape.dims[0]);
}

Json number(double value) {
  const bool whole = std::floor(value) == value && std::abs(value) < 1e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

}  // namespace

struct PathPattern::Code {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code;
};

PathPattern::PathPattern(std::string text) : text_(std::move(text)) {
  const std::string whole = "(?:.*\\.)?(?:" + text_ + ")";
  int error_number = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error_number, &at, nullptr);
  if (code != nullptr) code_ = std::make_shared<const Code>(Code{{code, &pcre2_code_free}});
}

bool PathPattern::matches(std::string_view path) const {
  internal_check(is_expression(), "the pattern '{}' is not a regular expression", text_);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->code.get(), nullptr), &pcre2_match_data_free);
  return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0, 0, data.get(),
                     nullptr) >= 0;
}

int64_t AdapterConfig::rank(std::string_view path) const {
  return by_pattern(rank_pattern, path, r);
}
double AdapterConfig::alpha(std::string_view path) const {
  return by_pattern(alpha_pattern, path, lora_alpha);
}
double AdapterConfig::scale(std::string_view path) const {
  const double of_rank = static_cast<double>(rank(path));
  return alpha(path) / (use_rslora ? std::sqrt(of_rank) : of_rank);
}

std::string adapter_key(std::string_view parameter) {
  return fmt::format("{}{}", kModulePrefix, parameter);
}

std::string adapter_key(std::string_view module, AdapterPart part) {
  return fmt::format("{}{}{}", kModulePrefix, module, suffix(part));
}

const TensorEntry* AdapterFolder::find(std::string_view module, AdapterPart part) const {
  const auto exact = [&](std::string_view name) -> const TensorEntry* {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), std::pair(name, part),
                                        [](const AdapterTensor& tensor, const auto& wanted) {
                                          return std::pair(std::string_view(tensor.module), tensor.part) < wanted;
                                        });
    return found != tensors.end() && found->module == name && found->part == part ? found->entry : nullptr;
  };
  const TensorEntry* found = exact(module);
  for (const std::string& other : other_names(module))
    if (found == nullptr) found = exact(other);
  return found;
}

const TensorEntry* AdapterFolder::find(std::string_view parameter) const {
  const auto [module, part] = module_and_part(parameter);
  return find(module, part);
}

AdapterConfig read_adapter_config(const fs::path& folder, AdapterSupport support) {
  const fs::path path = folder / kConfigFile;
  if (!fs::is_directory(folder))
    throw UserError("the adapter folder '{}' does not exist; check adapter_name_or_path", folder.string());
  if (!fs::exists(path)) require_ended_run(folder, kConfigFile, "adapter_name_or_path");
  if (!fs::exists(path))
    throw UserError("{} is missing; set adapter_name_or_path to a folder that PEFT or Fettle saved", path.string());
  const auto fields = read_json_file<OrderedJson>(path);  // keeps the patterns in the order in which they are tried
  if (!fields.is_object())
    throw UserError("{}: contains a JSON {}, wanted an object", path.string(), fields.type_name());

  AdapterFields reader(path, fields);
  AdapterConfig config;
  const OrderedJson* type = reader.field("peft_type");
  if (type == nullptr || *type != "LORA")
    throw UserError(
        "{}: peft_type is {}, but Fettle reads only LORA adapters; merge the adapter into its base with PEFT",
        path.string(), type == nullptr ? "missing" : type->dump());
  reader.read("base_model_name_or_path", config.base_model_name_or_path, "a string");
  reader.read("task_type", config.task_type, "a string");
  reader.read("r", config.r, "a whole number");
  config.lora_alpha = 8;  // PEFT's own default
  reader.read("lora_alpha", config.lora_alpha, "a number");
  reader.read("lora_dropout", config.lora_dropout, "a number");
  reader.read("use_rslora", config.use_rslora, "true or false");
  reader.read("use_dora", config.use_dora, "true or false");
  reader.read("fan_in_fan_out", config.fan_in_fan_out, "true or false");
  reader.read("modules_to_save", config.modules_to_save, "a list of names");
  reader.read_patterns("rank_pattern", config.rank_pattern);
  reader.read_patterns("alpha_pattern", config.alpha_pattern);
  reader.read("target_parameters", config.target_parameters, "a list of names");
  reader.read("peft_version", config.peft_version, "a string");
  if (const OrderedJson* targets = reader.field("target_modules"); targets != nullptr && targets->is_string())
    config.target_pattern = targets->get<std::string>();
  else
    reader.read("target_modules", config.target_modules, "a list of names or a pattern");
  for (const char* name : {"exclude_modules", "layers_to_transform", "layers_pattern"})
    if (const OrderedJson* value = reader.field(name)) config.selection[name] = Json::parse(value->dump());
  const OrderedJson* bias = reader.field("bias");
  if (bias != nullptr && *bias != "none") reader.refuse_feature("bias");
  check_initialisation(reader);
  if (config.use_dora && !support.dora) reader.refuse_feature("use_dora");
  if (!config.modules_to_save.empty() && !support.modules_to_save) reader.refuse_feature("modules_to_save");
  if (!config.target_parameters.empty() && !support.target_parameters) reader.refuse_feature("target_parameters");
  // These fields configure the initialisation or disabled features, or are only informative.
  for (const char* name : {"inference_mode", "auto_mapping", "revision", "megatron_core", "loftq_config", "eva_config",
                           "corda_config", "qalora_group_size", "runtime_config", "ensure_weight_tying"})
    reader.field(name);
  reader.finish();

  if (config.r < 1) throw UserError("{}: 'r' is {}, wanted 1 or more", path.string(), config.r);
  for (const auto& [pattern, rank] : config.rank_pattern)
    if (rank < 1)
      throw UserError("{}: 'rank_pattern' has the rank {} for '{}', wanted 1 or more", path.string(), rank,
                      pattern.text());
  return config;
}

TensorFile open_adapter_weights(const fs::path& folder) {
  const fs::path older = folder / kOlderWeightsFile;
  if (!fs::exists(folder / kWeightsFile) && fs::exists(older)) return TorchFile::open(older);
  return SafetensorsFile::open(folder / kWeightsFile);
}

AdapterFolder read_adapter(const fs::path& folder, AdapterSupport support) {
  AdapterConfig config = read_adapter_config(folder, support);
  TensorFile file = open_adapter_weights(folder);
  std::vector<AdapterTensor> tensors = name_tensors(file, config, support.modules_to_save);
  AdapterFolder adapter{std::move(config), std::move(file), std::move(tensors)};
  bool lora = false;
  for (size_t i = 0; i < adapter.tensors.size(); ++i) {
    const AdapterTensor& tensor = adapter.tensors[i];
    if (tensor.part == AdapterPart::kSaved || (i > 0 && adapter.tensors[i - 1].module == tensor.module)) continue;
    check_module(adapter, tensor.module);
    lora = true;
  }
  if (!lora) throw UserError("{}: it has no LoRA weights; save the adapter again", adapter.file.path().string());
  return adapter;
}

std::string to_json(const AdapterConfig& config) {
  const auto names = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    return list;
  };
  OrderedJson ranks = OrderedJson::object(), alphas = OrderedJson::object();
  for (const auto& [pattern, rank] : config.rank_pattern) ranks[pattern.text()] = rank;
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    alphas[pattern.text()] = OrderedJson::parse(number(alpha).dump());
  const bool saves = !config.modules_to_save.empty();
  std::map<std::string, OrderedJson> fields{
      {"alpha_pattern", alphas},
      {"auto_mapping", nullptr},
      {"base_model_name_or_path", config.base_model_name_or_path},
      {"bias", "none"},
      {"fan_in_fan_out", config.fan_in_fan_out},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layers_pattern", nullptr},
      {"layers_to_transform", nullptr},
      {"lora_alpha", OrderedJson::parse(number(config.lora_alpha).dump())},
      {"lora_dropout", config.lora_dropout},
      {"modules_to_save", saves ? OrderedJson(names(config.modules_to_save)) : OrderedJson(nullptr)},
      {"peft_type", "LORA"},
      {"r", config.r},
      {"rank_pattern", ranks},
      {"revision", nullptr},
      {"target_modules",
       config.target_pattern.empty() ? OrderedJson(names(config.target_modules)) : OrderedJson(config.target_pattern)},
      {"task_type", config.task_type.empty() ? OrderedJson(nullptr) : OrderedJson(config.task_type)},
      {"use_dora", config.use_dora},
      {"use_rslora", config.use_rslora}};
  // PEFT before 0.17 does not know this field.
  if (!config.target_parameters.empty()) fields["target_parameters"] = config.target_parameters;
  for (const auto& [name, value] : config.selection.items()) fields[name] = OrderedJson::parse(value.dump());
  OrderedJson all = OrderedJson::object();
  for (auto& [name, value] : fields) all[name] = std::move(value);
  return all.dump(2, ' ', true, OrderedJson::error_handler_t::replace);
}

SafetensorsWriter begin_adapter(const fs::path& folder, const AdapterConfig& config, const NamedShapes& tensors) {
  write_file(folder / kConfigFile, to_json(config));
  return SafetensorsWriter(folder / kWeightsFile, tensors);
}

}  // namespace fettle
