// Defines SafetensorsWriter, which writes a .safetensors file piece by piece, in bounded memory.
//
// The layout is that of Hugging Face's library: tensors sorted by dtype (wide ones first), then by name; the header is
// padded with spaces to a multiple of 8. Reading a file of that library and writing it again gives the same bytes.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_output.h"

namespace fettle {

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// Move-only. The destructor removes the file unless finish() was called.
class SafetensorsWriter {
 public:
  // Creates `path`, reserves its full size and writes the header. Throws UserError when the folder is not writable,
  // DoesNotFit when the disk is full, and InternalError for duplicate names.
  SafetensorsWriter(std::filesystem::path path, const NamedShapes& tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::filesystem::path& path() const { return output_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  // Writes `bytes` at byte `at` of the tensor `name`. Tensors and pieces may come in any order, but each byte only
  // once.
  void write(const std::string& name, std::span<const std::byte> bytes, int64_t at = 0);
  // Flushes to the disk and closes. Throws InternalError, which names the tensor, when a tensor is incomplete.
  void finish() { output_.finish(); }

 private:
  struct Layout {
    std::vector<TensorEntry> entries;
    std::string header;  // begins with its length
  };
  static Layout lay_out(const NamedShapes& tensors, const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(Layout layout, std::filesystem::path path);

  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  TensorOutput output_;
};

}  // namespace fettle
