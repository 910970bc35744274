#include "checkpoint/model_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/free_space.h"
#include "base/files/json_file.h"
#include "base/pattern.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

// Divides the tensors into shards, in order, and fills each shard as far as possible. A tensor that is larger than a
// shard gets a shard of its own, which comes before the shard that is being filled.
std::vector<NamedShapes> split(const NamedShapes& tensors, int64_t shard_bytes) {
  std::vector<NamedShapes> shards;
  NamedShapes current;
  int64_t current_bytes = 0;
  for (const auto& tensor : tensors) {
    const int64_t bytes = tensor.second.bytes();
    if (bytes > shard_bytes) {
      shards.push_back({tensor});
      continue;
    }
    if (current_bytes + bytes > shard_bytes) {
      shards.push_back(std::move(current));
      current.clear();
      current_bytes = 0;
    }
    current.push_back(tensor);
    current_bytes += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

bool is_shard(const std::string& name) {
  static const Pattern kShard("model-[0-9]{5,}-of-[0-9]{5,}\\.safetensors");
  return kShard.match(name).has_value();
}

}  // namespace

ModelWriter::ModelWriter(fs::path folder, const NamedShapes& tensors, int64_t shard_bytes)
    : folder_(std::move(folder)) {
  internal_check(shard_bytes > 0, "ModelWriter: shards of {} bytes", shard_bytes);
  for (const auto& [name, shape] : tensors) {
    total_bytes_ += shape.bytes();
    total_elements_ += shape.elements();
  }
  require_free_bytes(folder_, total_bytes_, "the model");
  const std::vector<NamedShapes> parts = split(tensors, shard_bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string file = parts.size() == 1 ? "model.safetensors"
                                               : fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, parts.size());
    shards_.emplace_back(folder_ / file, parts[i]);
    for (const auto& [name, shape] : parts[i])
      internal_check(shard_of_.emplace(name, i).second, "ModelWriter: two tensors are called '{}'", name);
  }
}

void ModelWriter::write(const std::string& name, std::span<const std::byte> bytes, int64_t at) {
  const auto found = shard_of_.find(name);
  internal_check(found != shard_of_.end(), "ModelWriter: tensor '{}' was not declared", name);
  shards_[found->second].write(name, bytes, at);
}

void ModelWriter::finish() {
  for (SafetensorsWriter& shard : shards_) shard.finish();
  if (shards_.size() == 1) return;
  nlohmann::json weight_map = nlohmann::json::object();
  for (const auto& [name, shard] : shard_of_) weight_map[name] = shards_[shard].path().filename().string();
  write_json_file(folder_ / "model.safetensors.index.json",
                  {{"metadata", {{"total_parameters", total_elements_}, {"total_size", total_bytes_}}},
                   {"weight_map", std::move(weight_map)}});
}

std::vector<std::string> weight_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    const bool weights = name == "model.safetensors" || name == "model.safetensors.index.json" || is_shard(name);
    if (weights) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace fettle
