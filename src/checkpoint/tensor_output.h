// Defines TensorOutput, which writes a file of tensors piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/output_file.h"

namespace fettle {

// A file with a header and tensors. The tensors are written piece by piece, in bounded memory. Move-only. The
// destructor removes the file unless finish() was called.
class TensorOutput {
 public:
  struct Place {
    std::string name;
    int64_t offset, bytes;
  };
  // Creates the file, reserves `bytes` and writes the header. Throws like OutputFile.
  TensorOutput(std::filesystem::path path, int64_t bytes, std::string_view header, std::vector<Place> tensors);

  const std::filesystem::path& path() const { return file_.path(); }
  // Writes `bytes` at byte `at` of the tensor with the index `tensor`. Tensors and pieces may come in any order, but
  // each byte only once.
  void write(size_t tensor, std::span<const std::byte> bytes, int64_t at);
  // Flushes to the disk and closes. Throws InternalError, which names the tensor, when a tensor is incomplete.
  void finish();

 private:
  std::vector<Place> tensors_;
  OutputFile file_;
  std::vector<int64_t> written_;  // for each tensor, the bytes written so far
};

}  // namespace fettle
