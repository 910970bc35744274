// Defines ModelRepository: a Hugging Face model folder with its config and the tensors of all shards by name.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace fettle {

// A tensor of a repository. Both pointers are valid only while the repository lives.
struct StoredTensor {
  const TensorFile* file;
  const TensorEntry* entry;
};

// Move-only.
class ModelRepository {
 public:
  enum class Weights { kRequired, kIgnored };

  // Reads config.json and, unless ignored, the headers of model.safetensors or of all shards of
  // model.safetensors.index.json; without these, of pytorch_model.bin or the shards of its index. Throws UserError with
  // the remedy when the folder is missing, when config.json is missing or broken (with line and column), when there are
  // no weights, when a shard is missing, when a tensor is not in the shard that the index names, and when two shards
  // have the same tensor.
  static ModelRepository open(const std::filesystem::path& folder, Weights weights = Weights::kRequired);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& config() const { return config_; }
  const std::optional<nlohmann::json>& generation_config() const { return generation_config_; }

  const std::vector<std::string>& names() const { return names_; }  // sorted
  // A tensor is found under its name or under another name that checkpoints use for it. Other names are the name
  // without its first part, when the base model was saved alone ("encoder.layer..." for "bert.encoder.layer..."), and
  // `gamma` and `beta` for the weight and bias of a LayerNorm, and "language_model.model." for "model.language_model.".
  bool contains(std::string_view name) const { return look_up(name) != nullptr; }
  // Throws UserError with the folder and similar names when there is no such tensor.
  StoredTensor find(std::string_view name) const;
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors
  const std::vector<TensorFile>& files() const { return files_; }

 private:
  struct Place {
    size_t file, entry;
  };
  const Place* look_up(std::string_view name) const;
  void open_weights();
  void open_shards(const std::filesystem::path& index_file);
  void add_file(TensorFile file);

  std::filesystem::path folder_;
  nlohmann::json config_;
  std::optional<nlohmann::json> generation_config_;
  std::vector<TensorFile> files_;
  std::map<std::string, Place, std::less<>> tensors_;
  std::vector<std::string> names_;
  int64_t total_bytes_ = 0;
};

// Copies the tokenizer's files (tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat
// templates, ...) from one model folder to another. copy_model_files also copies config.json, generation_config.json
// and remote code (the *.py files that auto_map names and those that they import from the folder). Skips missing files.
// Throws UserError when a file cannot be read or written.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_model_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fettle
