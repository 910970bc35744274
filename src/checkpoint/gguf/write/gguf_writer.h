// Defines GgufWriter, which writes a GGUF file piece by piece, in bounded memory.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/gguf/write/metadata.h"
#include "checkpoint/tensor_output.h"

namespace fettle {

// Returns the size in bytes of a row-major tensor of this type. The last dim must be a multiple of the type's block.
int64_t bytes_of(const Dims& dims, const BlockType& type);

// Move-only. The destructor removes the file unless finish() was called.
class GgufWriter {
 public:
  // Creates `path`, reserves its full size and writes the header. Stores `tensors` in the given order and sets their
  // offsets and sizes. Throws UserError when the folder is not writable, and DoesNotFit when the disk is full.
  GgufWriter(std::filesystem::path path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors);

  const std::filesystem::path& path() const { return output_.path(); }
  int64_t bytes() const { return bytes_; }  // size of the whole file
  // Writes `bytes` at byte `at` of the tensor with the index `tensor`. Pieces may come in any order, but each byte only
  // once.
  void write(size_t tensor, std::span<const std::byte> bytes, int64_t at) { output_.write(tensor, bytes, at); }
  // Flushes to the disk and closes. Throws InternalError, which names the tensor, when a tensor is incomplete.
  void finish() { output_.finish(); }

 private:
  struct Layout {
    std::vector<TensorOutput::Place> tensors;
    std::string header;
    int64_t bytes = 0;
  };
  static Layout lay_out(const GgufMetadata& metadata, std::vector<GgufTensor> tensors);
  GgufWriter(Layout layout, std::filesystem::path path);

  int64_t bytes_;
  TensorOutput output_;
};

}  // namespace fettle
