// Defines ModelWriter: writes a model's weights as Hugging Face's save_pretrained lays them out.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors_writer.h"

namespace fettle {

// model.safetensors when all fits into one shard; else model-00001-of-0000N.safetensors and
// model.safetensors.index.json. Memory is what the caller passes.
class ModelWriter {
 public:
  // Shards are filled in the order of `tensors`, each up to `shard_bytes` of tensor bytes (a larger tensor has a shard
  // of its own). Reserves all disk space: throws UserError when the folder is not writable or the disk is full.
  ModelWriter(std::filesystem::path folder, const NamedShapes& tensors, int64_t shard_bytes);

  // As SafetensorsWriter::write: any order, in pieces.
  void write(const std::string& name, std::span<const std::byte> bytes, int64_t at = 0);
  void finish();  // flushes, writes the index; throws InternalError naming a tensor that is not complete

  int64_t total_bytes() const { return total_bytes_; }
  size_t shard_count() const { return shards_.size(); }

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsWriter> shards_;
  std::unordered_map<std::string, size_t> shard_of_;
  int64_t total_bytes_ = 0, total_elements_ = 0;
};

// Names of the files in `folder` that are called as ModelWriter calls its own.
std::vector<std::string> weight_files(const std::filesystem::path& folder);

}  // namespace fettle
