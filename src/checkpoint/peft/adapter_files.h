// Reads and writes LoRA adapters as PEFT's files: adapter_config.json and adapter_model.safetensors.
//
// Keys are base_model.model.<module path>.lora_A.weight [r, in] and .lora_B.weight [out, r] (for a Conv1D base too);
// DoRA adds .lora_magnitude_vector [out]; a parameter of E experts has lora_A [E r, in] and lora_B [out, r E], under
// <module> or, of two parameters of a module, under <module>.base_layer; modules_to_save keep their parameters' names
// after base_model.model.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/safetensors_writer.h"

namespace fettle {

// The part of PEFT's LoraConfig that Fettle has. Every other field must have the value that changes nothing.
struct AdapterConfig {
  std::string base_model_name_or_path;
  std::string task_type = "CAUSAL_LM";
  int64_t r = 8;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> target_modules;  // names or paths of modules, written sorted
  std::string target_pattern;               // instead: one regular expression over paths, or "all-linear"
  // exclude_modules, layers_to_transform and layers_pattern as read: they choose modules, and the tensors name exactly
  // which were chosen, so they are only kept.
  nlohmann::json selection = nlohmann::json::object();
  // Module name, path or regular expression -> its own rank or alpha; the first that matches counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;    // trained whole
  std::vector<std::string> target_parameters;  // of experts: "mlp.experts.gate_up_proj"
  bool use_rslora = false;
  bool use_dora = false;
  bool fan_in_fan_out = false;  // true for Conv1D bases (gpt2)

  // Of the module at `path` ("model.layers.0.self_attn.q_proj"), as PEFT matches patterns: all of the path, or what
  // follows one of its dots. scale is alpha / rank, with rsLoRA alpha / sqrt(rank).
  int64_t rank(std::string_view path) const;
  double alpha(std::string_view path) const;
  double scale(std::string_view path) const;
};

enum class AdapterPart { kLoraA, kLoraB, kMagnitude, kSaved };

// The tensor's key: ("model.layers.0.self_attn.q_proj", kLoraA) gives
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"; for kSaved `module` is a parameter
// ("score.weight").
std::string adapter_key(std::string_view module, AdapterPart part);
// The key of a parameter's tensor.
std::string adapter_key(std::string_view parameter);

struct AdapterTensor {
  std::string module;  // as adapter_key takes it
  AdapterPart part;
  const TensorEntry* entry;  // of the folder's file
};

// An adapter on disk. Move-only.
struct AdapterFolder {
  AdapterConfig config;
  SafetensorsFile file;                // owns the bytes
  std::vector<AdapterTensor> tensors;  // by module, then part

  // nullptr when there is none.
  const TensorEntry* find(std::string_view module, AdapterPart part) const;
  // By the parameter's name: "model.layers.0.self_attn.q_proj.lora_A.weight".
  const TensorEntry* find(std::string_view parameter) const { return file.find(adapter_key(parameter)); }
};

// What the caller can apply beyond LoRA itself; the rest is refused by name.
struct AdapterSupport {
  bool dora = false;
  bool modules_to_save = false;
  bool target_parameters = false;
};

// Throws UserError naming the file and the field when a field has a value that changes results and is not in
// AdapterConfig (bias, another PEFT method, PiSSA, ...) or not in `support`: nothing of that kind is ignored.
AdapterConfig read_adapter_config(const std::filesystem::path& folder, AdapterSupport support = {});
// Also checks the tensors: known keys, float dtypes, A and B in pairs, ranks equal to the config's, magnitudes exactly
// with DoRA.
AdapterFolder read_adapter(const std::filesystem::path& folder, AdapterSupport support = {});

// The text of adapter_config.json, with the fields that both old and new PEFT know.
std::string to_json(const AdapterConfig& config);
// Writes the config and opens adapter_model.safetensors for `tensors` (keys from adapter_key); the caller writes them
// and calls finish().
SafetensorsWriter begin_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                                const NamedShapes& tensors);

}  // namespace fettle
