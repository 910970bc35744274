// Defines ModelRepository: a Hugging Face model folder with its config and the tensors of all shards by name.
#pragma once

#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/table/tensor_table.h"

namespace fettle {

// Throws UserError, which says what to do with `name`: an adapter where a model is wanted.
[[noreturn]] void refuse_adapter(const std::string& name);

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
  // Returns the content of config.json. If the weights were read, its quantization_config leaves out all modules that
  // the files have in floats (table/joined_tensors.h).
  const nlohmann::json& config() const { return config_; }
  const std::optional<nlohmann::json>& generation_config() const { return generation_config_; }

  const std::vector<std::string>& names() const { return names_; }  // sorted
  // Returns whether the repository has the tensor, under this name or under another name that some checkpoints use
  // (spellings in table/spellings.h).
  bool contains(std::string_view name) const { return table_.look_up(name) != nullptr; }
  // Returns the tensor with this name (see contains). Several stored tensors may count as one tensor of floats, as
  // table/joined_tensors.h says, and a tied head may count as the embedding (table/tied_head.h). Throws UserError,
  // which names the folder and similar names, when there is no such tensor.
  StoredTensor find(std::string_view name) const;
  int64_t total_bytes() const { return total_bytes_; }  // size of all tensors together
  const std::deque<TensorFile>& files() const { return table_.files(); }
  // Returns all tensors, in the order of the files.
  std::vector<StoredTensor> tensors() const { return table_.in_file_order(); }

 private:
  void open_weights();
  void open_shards(const std::filesystem::path& index_file);

  std::filesystem::path folder_;
  nlohmann::json config_;
  std::optional<nlohmann::json> generation_config_;
  TensorTable table_;
  std::vector<std::string> names_;
  int64_t total_bytes_ = 0;
};

}  // namespace fettle
