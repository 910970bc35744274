// Defines SafetensorsWriter: writes a .safetensors file piece by piece, in bounded memory.
//
// The layout is that of Hugging Face's library: tensors by dtype (wide ones first), then by name; header padded with
// spaces to a multiple of 8. A file that library wrote, read and written again gives the same bytes.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"

namespace fettle {

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// Move-only; the file is removed again unless finish() was called.
class SafetensorsWriter {
 public:
  // Creates `path` with its full size reserved and its header written. Throws UserError when the folder is not
  // writable or the disk is full, InternalError on duplicate names.
  SafetensorsWriter(std::filesystem::path path, const NamedShapes& tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in file order
  // Writes `bytes` of `name` from byte `at` of the tensor; tensors and pieces come in any order, each byte once.
  void write(const std::string& name, std::span<const std::byte> bytes, int64_t at = 0);
  // Flushes to the disk and closes; throws InternalError naming a tensor that is not complete.
  void finish();

 private:
  struct Layout {
    std::vector<TensorEntry> entries;
    std::string header;  // with the length before it
  };
  static Layout lay_out(const NamedShapes& tensors, const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(Layout layout, std::filesystem::path path);

  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  OutputFile file_;
  std::vector<int64_t> written_;  // bytes so far, by entry
};

}  // namespace fettle
