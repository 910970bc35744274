// Defines GgufMetadata: the keys that a new GGUF file gets, with typed values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/gguf/header.h"

namespace fettle {

using GgufValue = std::variant<uint16_t, uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>, std::vector<float>, std::vector<bool>>;

class GgufMetadata {
 public:
  // `architecture` becomes the first key, general.architecture.
  explicit GgufMetadata(std::string architecture);

  // Adds a key, or replaces its value. A leading '.' stands for the architecture, as in GgufFields.
  void set(const std::string& key, GgufValue value);
  // Does the same for an integer >= 0. Throws UserError when the integer does not fit into 32 bits.
  void set_integer(const std::string& key, int64_t value);
  void set_number(const std::string& key, double value) { set(key, static_cast<float>(value)); }

  const std::string& architecture() const { return architecture_; }
  const std::vector<std::pair<std::string, GgufValue>>& values() const { return values_; }

 private:
  std::string architecture_;
  std::vector<std::pair<std::string, GgufValue>> values_;  // in the order in which they are written
};

// Returns the header as it would be read from a file with these keys and tensors.
GgufHeader header_of(const GgufMetadata& metadata, std::vector<GgufTensor> tensors);

// Returns the bytes of a file's header, version 3, up to the first byte of the first tensor. The offsets of `tensors`
// are relative to that byte.
std::string header_bytes(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);

// Each tensor begins at a multiple of this number of bytes.
inline constexpr int64_t kGgufAlignment = 32;
int64_t gguf_aligned(int64_t offset);

}  // namespace fettle
