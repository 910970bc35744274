// Defines GgufParts, which writes a model as one GGUF file or as several, in llama.cpp's form (llama-gguf-split).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/write/gguf_writer.h"

namespace fettle {

// Move-only. The destructor removes the files unless finish() was called.
class GgufParts {
 public:
  // Creates STEM.gguf in `folder`. If the tensors have more than `most` bytes (0: no limit), creates
  // STEM-00001-of-0000N.gguf and so on, each with at most `most` bytes of tensors, or with one larger tensor. The first
  // part has all keys. Throws the same errors as GgufWriter, and UserError for more files than GGUF can number.
  GgufParts(const std::filesystem::path& folder, const std::string& stem, const GgufMetadata& metadata,
            const std::vector<GgufTensor>& tensors, int64_t most);

  size_t files() const { return writers_.size(); }
  std::string first_name() const { return writers_.front().path().filename().string(); }
  int64_t bytes() const;  // size of all files together
  // Like GgufWriter::write; `tensor` is an index over the tensors of all files.
  void write(size_t tensor, std::span<const std::byte> bytes, int64_t at);
  void finish();

 private:
  struct Place {
    size_t file, tensor;
  };
  std::vector<GgufWriter> writers_;
  std::vector<Place> places_;  // for each tensor: its file, and its index in the file
};

}  // namespace fettle
