// Defines ModelWriter, which writes a model's weights in the layout of Hugging Face's save_pretrained.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors_writer.h"

namespace fettle {

// Writes model.safetensors when everything fits into one shard; otherwise model-00001-of-0000N.safetensors and
// model.safetensors.index.json. It allocates no memory for tensors; it writes the caller's bytes.
class ModelWriter {
 public:
  // Shards are filled in the order of `tensors`, each with up to `shard_bytes` bytes of tensors (a larger tensor gets
  // its own shard). Reserves all disk space. Throws UserError when the folder is not writable, and DoesNotFit when the
  // disk is full.
  ModelWriter(std::filesystem::path folder, const NamedShapes& tensors, int64_t shard_bytes);

  // Writes bytes of a tensor like SafetensorsWriter::write: in any order, in pieces.
  void write(const std::string& name, std::span<const std::byte> bytes, int64_t at = 0);
  void finish();  // flushes and writes the index; throws InternalError for an incomplete tensor

  int64_t total_bytes() const { return total_bytes_; }
  size_t shard_count() const { return shards_.size(); }

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsWriter> shards_;
  std::unordered_map<std::string, size_t> shard_of_;
  int64_t total_bytes_ = 0, total_elements_ = 0;
};

// Returns the files in `folder` whose names ModelWriter could have written.
std::vector<std::string> weight_files(const std::filesystem::path& folder);

}  // namespace fettle
