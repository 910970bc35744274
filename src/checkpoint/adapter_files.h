// Reads and writes LoRA adapters as PEFT's files: adapter_config.json and adapter_model.safetensors.
//
// Keys are base_model.model.<HF module path>.lora_A.weight [r, in] and .lora_B.weight [out, r] (for a Conv1D base too),
// DoRA adds .lora_magnitude_vector [out], an embedding has .lora_embedding_A [r, vocab] and .lora_embedding_B [dim, r].
#pragma once

#include <filesystem>
#include <map>
#include <string>
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
  std::vector<std::string> target_modules;  // names (suffixes of module paths); written sorted
  std::string target_pattern;               // or one regular expression over whole paths; "all-linear" stays
  std::vector<std::string> exclude_modules;
  std::vector<int64_t> layers_to_transform;     // empty: all
  std::map<std::string, int64_t> rank_pattern;  // module name or pattern -> rank
  std::map<std::string, double> alpha_pattern;
  std::vector<std::string> modules_to_save;  // trained whole, saved under their own names
  bool use_rslora = false;
  bool use_dora = false;
  bool fan_in_fan_out = false;  // true for Conv1D bases (gpt2)

  double scale(int64_t rank, double alpha) const;  // alpha / rank, or alpha / sqrt(rank) with rsLoRA
};

// The rank and alpha of `module` by the patterns, as PEFT matches them: a key equals the path, or its last part(s).
int64_t rank_of(const AdapterConfig& config, std::string_view module);
double alpha_of(const AdapterConfig& config, std::string_view module);

enum class AdapterPart { kLoraA, kLoraB, kMagnitude, kSaved };

// The tensor's key: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". kSaved: `module` is the
// parameter's own name ("score.weight").
std::string adapter_key(std::string_view module, AdapterPart part);

struct AdapterTensor {
  std::string module;  // the base module's path ("model.layers.0.self_attn.q_proj"); kSaved: the parameter's name
  AdapterPart part;
  TensorEntry entry;
};

// An adapter on disk. `file` owns the bytes.
struct AdapterFolder {
  AdapterConfig config;
  SafetensorsFile file;
  std::vector<AdapterTensor> tensors;  // by module, then part

  const AdapterTensor* find(std::string_view module, AdapterPart part) const;
};

// Throws UserError naming the file and the field that Fettle does not have (bias other than none, another PEFT method,
// ...): nothing that changes results is ignored.
AdapterConfig read_adapter_config(const std::filesystem::path& folder);
// Also checks the tensors: known keys, A and B in pairs, ranks equal to the config's, modules_to_save present.
AdapterFolder read_adapter(const std::filesystem::path& folder);

void write_adapter_config(const std::filesystem::path& folder, const AdapterConfig& config);
// Writes the config and opens adapter_model.safetensors for the tensors (keys from adapter_key); the caller finishes.
SafetensorsWriter begin_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                                const NamedShapes& tensors);

}  // namespace fettle
