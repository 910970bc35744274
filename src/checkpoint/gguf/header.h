// Defines GgufHeader: the metadata of a GGUF file and the positions of its tensors.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3 are read.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arrays/shape.h"
#include "checkpoint/gguf/block_types.h"

namespace fettle {

struct GgufTensor {
  std::string name;
  Dims dims;  // row-major, like Hugging Face: the reverse of the file's order
  const BlockType* type;
  int64_t offset;  // position of its first byte in the file
  int64_t bytes;
  size_t part = 0;  // number of the file, if the model has several
};

struct GgufHeader {
  // The metadata by key. A 32-bit float is stored as the shortest decimal that rounds to it, so that 1e-05 stays 1e-05.
  // Strings may contain any bytes.
  std::map<std::string, nlohmann::json> values;
  std::vector<GgufTensor> tensors;  // in the order of their parts and offsets
};

// Returns, as a double, the shortest decimal that rounds to `value`.
double shortest_double(float value);

// Reads and checks the header of a file with the bytes `file`. `name` is the file's name in messages. Throws UserError
// when the file is not GGUF, is of version 1, is big-endian, or ends too early. Also throws UserError for a key or
// tensor that occurs twice, a size that overflows, an unknown type, and tensors that overlap or lie outside of the
// file.
GgufHeader read_gguf_header(std::span<const std::byte> file, const std::string& name);

}  // namespace fettle
