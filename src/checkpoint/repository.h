// Defines ModelRepository: a Hugging Face model folder with its config and the tensors of all shards by name.
#pragma once

#include <deque>
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

// The file that changed_folder() writes for new tokens. It has the last rows of the embedding and the head. These rows
// replace the last rows of the model's own tensors and extend these tensors.
inline constexpr const char* kNewRows = "new_token_rows.safetensors";

// Move-only.
class ModelRepository {
 public:
  enum class Weights { kRequired, kIgnored };

  // Reads config.json and, if `weights` is kRequired, the headers of the weights. The weights are the first of these
  // that exists: model.safetensors, the shards of model.safetensors.index.json, pytorch_model.bin, the shards of its
  // index, or model.gguf (gguf/gguf_folder.h). Throws UserError with the remedy when the folder, config.json, the
  // weights or a shard is missing, and when config.json is broken (with line and column). Also throws UserError when a
  // tensor is not in the shard that the index names, and when two shards have the same tensor.
  static ModelRepository open(const std::filesystem::path& folder, Weights weights = Weights::kRequired);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& config() const { return config_; }
  const std::optional<nlohmann::json>& generation_config() const { return generation_config_; }

  const std::vector<std::string>& names() const { return names_; }  // sorted
  // Returns whether the repository has the tensor, under this name or under another name that some checkpoints use. For
  // example, a checkpoint of only a base model leaves out the first part of the name ("encoder.layer..." for
  // "bert.encoder.layer..."). Older checkpoints call the weight and bias of a LayerNorm `gamma` and `beta`, and write
  // "language_model.model." for "model.language_model.".
  bool contains(std::string_view name) const { return look_up(name) != nullptr; }
  // Returns the tensor with this name (see contains). Several stored tensors may count as one tensor of floats:
  // "<name>_blocks" and "<name>_scales" in MXFP4 are <name>; a weight in 8-bit floats and its factors (Float8Storage)
  // have the name of the weight; integers with their scales and zeros (GroupStorage) are <module>.weight. Throws
  // UserError, which names the folder and similar names, when there is no such tensor.
  StoredTensor find(std::string_view name) const;
  int64_t total_bytes() const { return total_bytes_; }  // size of all tensors together
  const std::deque<TensorFile>& files() const { return files_; }
  std::vector<StoredTensor> tensors() const;  // all tensors, in the order of the files

 private:
  struct Place {
    size_t file, entry;
    const TensorEntry* joined = nullptr;  // a tensor that is computed from others; null: a stored tensor
  };
  StoredTensor stored_at(const Place& place) const;
  void join_mxfp4();
  void join_float8();
  void join_groups();
  // For families that read one tensor with all experts of a layer: joins the weights of these experts if the checkpoint
  // has a tensor for each expert.
  void join_experts();
  DType stated_dtype() const;  // the weights' dtype in config.json; bfloat16 when config.json states none
  void join_pieces();          // for GGUF files
  void grow_tables();
  const Place* look_up(std::string_view name) const;
  void open_weights();
  void open_shards(const std::filesystem::path& index_file);
  void add_file(TensorFile file);

  std::filesystem::path folder_;
  nlohmann::json config_;
  std::optional<nlohmann::json> generation_config_;
  std::deque<TensorFile> files_;  // joined tensors point to them
  std::map<std::string, Place, std::less<>> tensors_;
  std::map<std::string, TensorEntry> joined_;
  std::vector<std::string> names_;
  int64_t total_bytes_ = 0;
};

// Copies the tokenizer's files (tokenizer.json, tokenizer_config.json, special_tokens_map.json, vocabularies, chat
// templates, ...) from one model folder to another. copy_model_files also copies the other files of
// is_model_file and remote code: the *.py files that auto_map names, and the files that these import from the folder.
// Skips missing files. Throws UserError when a file cannot be read or written.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);
void copy_model_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fettle
