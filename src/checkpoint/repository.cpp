#include "checkpoint/repository.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/saved/result_folder.h"
#include "checkpoint/table/joined_tensors.h"
#include "checkpoint/table/tied_head.h"
#include "checkpoint/torch/torch_file.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

void check_folder(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (status.type() == fs::file_type::not_found) {
    throw UserError("the model folder '{}' does not exist; check model_name_or_path (names on the hub are ORG/NAME)",
                    folder.string());
  }
  if (code) throw_file_error("read", folder, code.value());
  if (status.type() != fs::file_type::directory)
    throw UserError("'{}' is a file; set model_name_or_path to the folder that contains config.json and the weights",
                    folder.string());
  fs::directory_iterator probe(folder, code);
  if (code) throw_file_error("read", folder, code.value());
}

Json read_object(const fs::path& path) {
  Json value = read_json_file(path);
  if (!value.is_object()) throw UserError("{}: contains a JSON {}, wanted an object", path.string(), value.type_name());
  return value;
}

bool has_file_ending(const fs::path& folder, std::string_view start, std::string_view end) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && name.ends_with(end)) return true;
  }
  return false;
}

// Returns up to three names that share the longest endings with `name`, for an error message.
std::vector<std::string> near_names(const std::vector<std::string>& names, std::string_view name) {
  std::vector<std::pair<size_t, std::string>> scored;
  for (const std::string& other : names) {
    const auto tail = std::mismatch(name.rbegin(), name.rend(), other.rbegin(), other.rend());
    scored.emplace_back(static_cast<size_t>(tail.first - name.rbegin()), other);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> near;
  for (size_t i = 0; i < std::min<size_t>(3, scored.size()); ++i) near.push_back(scored[i].second);
  return near;
}

TensorFile open_tensors(const fs::path& path) {
  if (path.extension() == ".bin") return TorchFile::open(path);
  return SafetensorsFile::open(path);
}

}  // namespace

void refuse_adapter(const std::string& name) {
  throw UserError(
      "{} is an adapter, not a model; set adapter_name_or_path to it and model_name_or_path to its base model", name);
}

ModelRepository ModelRepository::open(const fs::path& folder, Weights weights) {
  check_folder(folder);
  ModelRepository repository;
  repository.folder_ = folder;
  const fs::path config = folder / "config.json";
  if (!fs::exists(config)) {
    require_ended_run(folder, "config.json", "model_name_or_path");
    if (fs::exists(folder / "adapter_config.json")) refuse_adapter(folder.string());
    throw UserError("{} is missing; set model_name_or_path to a Hugging Face model folder", config.string());
  }
  repository.config_ = read_object(config);
  if (fs::exists(folder / "generation_config.json"))
    repository.generation_config_ = read_object(folder / "generation_config.json");
  if (weights == Weights::kRequired) repository.open_weights();
  return repository;
}

void ModelRepository::open_weights() {
  if (fs::exists(folder_ / "model.safetensors")) {
    table_.add_file(SafetensorsFile::open(folder_ / "model.safetensors"));
  } else if (fs::exists(folder_ / "model.safetensors.index.json")) {
    open_shards(folder_ / "model.safetensors.index.json");
  } else if (fs::exists(folder_ / "pytorch_model.bin")) {
    table_.add_file(TorchFile::open(folder_ / "pytorch_model.bin"));
  } else if (fs::exists(folder_ / "pytorch_model.bin.index.json")) {
    open_shards(folder_ / "pytorch_model.bin.index.json");
  } else if (fs::exists(fs::symlink_status(folder_ / kGgufWeights))) {
    for (TensorFile& file : open_gguf(folder_ / kGgufWeights)) table_.add_file(std::move(file));
    join_pieces(table_);
  } else if (has_file_ending(folder_, "model-", ".safetensors")) {
    throw UserError("{} has shards but no model.safetensors.index.json; download that file too", folder_.string());
  } else if (has_file_ending(folder_, "pytorch_model-", ".bin")) {
    throw UserError("{} has shards but no pytorch_model.bin.index.json; download that file too", folder_.string());
  } else {
    if (fs::exists(folder_ / "adapter_config.json")) refuse_adapter(folder_.string());
    throw UserError(
        "{} has no weights: there is no model.safetensors, no pytorch_model.bin and no index of either; download "
        "the weights, or train from random weights (train_from_scratch: true)",
        folder_.string());
  }
  const TensorFile* new_rows =
      fs::exists(folder_ / kNewRows) ? &table_.keep_file(SafetensorsFile::open(folder_ / kNewRows)) : nullptr;
  leave_out_activation_scales(table_, config_);
  join_mxfp4(table_, config_);
  join_float8(table_, config_, folder_);
  join_bitsandbytes(table_, config_, folder_);
  join_groups(table_, config_, folder_);
  leave_out_modules_in_floats(table_, config_, folder_);
  join_experts(table_, config_, folder_);
  take_head_for_embedding(table_, config_, folder_);
  total_bytes_ = table_.added_bytes();
  if (new_rows != nullptr) total_bytes_ += grow_tables(table_, *new_rows, config_);
  for (const auto& [name, place] : table_.places()) names_.push_back(name);
}

void ModelRepository::open_shards(const fs::path& index_file) {
  const Json index = read_object(index_file);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    throw UserError("{}: it has no object 'weight_map'; download the file again", index_file.string());
  std::set<std::string> shards;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string())
      throw UserError("{}: weight_map: the value of '{}' is not a file name; download the file again",
                      index_file.string(), name);
    const std::string shard = file.get<std::string>();
    if (shard.empty() || shard.find('/') != std::string::npos || shard == "..")
      throw UserError("{}: weight_map: '{}' has the file '{}', wanted the name of a file in the same folder",
                      index_file.string(), name, shard);
    shards.insert(shard);
  }
  for (const std::string& shard : shards) {
    if (!fs::exists(folder_ / shard))
      throw UserError("{}: the shard {} is missing; download it", index_file.string(), shard);
    table_.add_file(open_tensors(folder_ / shard));
  }
  for (const auto& [name, file] : map->items()) {
    const TensorTable::Place* found = table_.find(name);
    if (found == nullptr || table_.at(*found).file->path().filename() != file.get<std::string>())
      throw UserError(
          "{}: '{}' should be in {}, but that file does not have it; download index and shards from the same place",
          index_file.string(), name, file.get<std::string>());
  }
}

StoredTensor ModelRepository::find(std::string_view name) const {
  const TensorTable::Place* found = table_.look_up(name);
  if (found == nullptr)
    throw UserError(
        "{} has no tensor '{}' among its {} tensors; similar names: {}. Do config.json and the weights belong to the "
        "same model?",
        folder_.string(), name, names_.size(), fmt::join(near_names(names_, name), ", "));
  return table_.at(*found);
}

}  // namespace fettle
