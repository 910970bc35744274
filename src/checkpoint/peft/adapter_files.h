// Reads and writes LoRA adapters as PEFT's files: adapter_config.json and adapter_model.safetensors.
//
// Keys are base_model.model.<module path>.lora_A.weight [r, in] and .lora_B.weight [out, r] (also for a Conv1D base).
// DoRA adds .lora_magnitude_vector [out]. A parameter of E experts has lora_A [E * r, in] and lora_B [out, r * E] under
// <module>; if a module has two such parameters, the LoRA weights of the first one are under <module>.base_layer. The
// parameters of modules_to_save have their own names after "base_model.model.". Adapters are also read from
// adapter_model.bin, which older versions of PEFT write, and with other names for the text model of a model with
// images: "language_model.model" (Transformers before 4.52) or "model" (AutoModelForCausalLM) for
// "model.language_model".
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_writer.h"

namespace fettle {

// A pattern of rank_pattern or alpha_pattern: a module's name or path, or a regular expression. As in PEFT, it matches
// the whole path, or everything after one of its dots: `q_proj` matches `layers.0.q_proj`. It is compiled once.
class PathPattern {
 public:
  PathPattern(std::string text);
  PathPattern(const char* text) : PathPattern(std::string(text)) {}

  const std::string& text() const { return text_; }
  bool is_expression() const { return code_ != nullptr; }  // false: the text is not a regular expression
  bool matches(std::string_view path) const;               // only if is_expression()
  bool operator==(const PathPattern& other) const { return text_ == other.text_; }

 private:
  struct Code;

  std::string text_;
  std::shared_ptr<const Code> code_;
};

// The fields of PEFT's LoraConfig that Fettle supports. Every other field must have a value without effect.
struct AdapterConfig {
  std::string base_model_name_or_path;
  std::string task_type = "CAUSAL_LM";
  int64_t r = 8;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> target_modules;  // names or paths of modules, written in sorted order
  std::string target_pattern;  // instead of target_modules: one regular expression over paths, or "all-linear"
  // exclude_modules, layers_to_transform and layers_pattern as read. They choose modules. Fettle takes the chosen
  // modules from the names of the tensors, and only writes these fields back.
  nlohmann::json selection = nlohmann::json::object();
  // Each pair has a pattern and the rank or alpha of the modules that match it. If several patterns match a module, the
  // first one counts.
  std::vector<std::pair<PathPattern, int64_t>> rank_pattern;
  std::vector<std::pair<PathPattern, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;    // modules that are trained in full
  std::vector<std::string> target_parameters;  // parameters of experts: "mlp.experts.gate_up_proj"
  std::string peft_version;  // "0.21.2": the version of PEFT that wrote the file; "": unknown. Is not written
  bool use_rslora = false;
  bool use_dora = false;
  bool fan_in_fan_out = false;  // true for Conv1D bases (gpt2)

  // The next functions return the values of the module at `path` ("model.layers.0.self_attn.q_proj"). scale() is alpha
  // / rank; with rsLoRA, alpha / sqrt(rank).
  int64_t rank(std::string_view path) const;
  double alpha(std::string_view path) const;
  double scale(std::string_view path) const;
};

enum class AdapterPart { kLoraA, kLoraB, kMagnitude, kSaved };

// Returns the key of a tensor in adapter_model.safetensors: ("model.layers.0.self_attn.q_proj", kLoraA) gives
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". For kSaved, `module` is a parameter
// ("score.weight").
std::string adapter_key(std::string_view module, AdapterPart part);
// Returns the key for a full parameter name: "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string adapter_key(std::string_view parameter);

struct AdapterTensor {
  std::string module;  // the argument `module` of adapter_key
  AdapterPart part;
  const TensorEntry* entry;  // the tensor in the folder's file
};

// An adapter on disk. Move-only.
struct AdapterFolder {
  AdapterConfig config;
  TensorFile file;                     // owns the bytes
  std::vector<AdapterTensor> tensors;  // sorted by module, then part

  // Both functions return nullptr when there is no such tensor.
  const TensorEntry* find(std::string_view module, AdapterPart part) const;
  // Finds a tensor by the parameter's name: "model.layers.0.self_attn.q_proj.lora_A.weight".
  const TensorEntry* find(std::string_view parameter) const;
};

// The PEFT features that the caller supports in addition to plain LoRA. Other features are refused by name.
struct AdapterSupport {
  bool dora = false;
  bool modules_to_save = false;
  bool target_parameters = false;
};

// Reads adapter_config.json. Throws UserError, which names file and field, when a field changes results but is not in
// AdapterConfig (bias, another PEFT method, PiSSA, ...) or not in `support`. Such fields are never ignored.
AdapterConfig read_adapter_config(const std::filesystem::path& folder, AdapterSupport support = {});
// Opens adapter_model.safetensors, or else adapter_model.bin. Throws UserError like the readers of both formats.
TensorFile open_adapter_weights(const std::filesystem::path& folder);
// Reads the config and the tensors. Also checks the tensors: known keys, float dtypes, both A and B for each module,
// ranks equal to the config's, and magnitudes if and only if use_dora is set. With support.modules_to_save, the result
// may have weights and biases that modules_to_save does not name. The caller checks that they are the model's embedding
// and head, which PEFT stores if the vocabulary was resized.
AdapterFolder read_adapter(const std::filesystem::path& folder, AdapterSupport support = {});

// Returns the text of adapter_config.json. It has fields for both old and new versions of PEFT.
std::string to_json(const AdapterConfig& config);
// Writes the config and opens adapter_model.safetensors for `tensors` (keys from adapter_key). The caller writes the
// tensors and calls finish().
SafetensorsWriter begin_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                                const NamedShapes& tensors);

}  // namespace fettle
