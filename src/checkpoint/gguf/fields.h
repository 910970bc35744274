// Defines GgufFields, which reads metadata of a GGUF file by key.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/header.h"

namespace fettle {

// Keeps a reference to the header. In a key, a leading '.' stands for the architecture: ".block_count" is
// "llama.block_count".
class GgufFields {
 public:
  // `parts` has the content of each file of the model (GgufTensor::part). Throws UserError when the file does not name
  // its architecture.
  GgufFields(const GgufHeader& header, std::vector<std::span<const std::byte>> parts, std::string file);

  const std::string& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  const GgufHeader& header() const { return header_; }

  bool has(const std::string& key) const { return find(key) != nullptr; }
  const nlohmann::json* find(const std::string& key) const;  // nullptr when there is no such key
  // The functions that return a number, a flag or a text throw UserError when the value has another type. When the key
  // is missing, in_layer() and layers() throw UserError. integer() and of_layers() return `otherwise`, or throw
  // UserError if the caller does not give `otherwise`.
  int64_t integer(const std::string& key) const;  // >= 0; if the value is a list of equal elements, their value
  int64_t integer(const std::string& key, int64_t otherwise) const;
  // If the value is a list, returns the layer's element. Otherwise returns the value, which holds for all layers.
  int64_t in_layer(const std::string& key, int64_t layer) const;
  // Like integer(), but skips the zeros of a list: layers without attention have 0 heads.
  int64_t of_layers(const std::string& key) const;
  int64_t of_layers(const std::string& key, int64_t otherwise) const;
  // Returns the numbers of the layers for which the list at `key` has 0; empty when the value is not a list.
  std::vector<int64_t> zero_layers(const std::string& key) const;
  // Returns the number of layers, without those that predict a second token (nextn_predict_layers), which come last.
  int64_t layers() const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::optional<int64_t> id(const std::string& key) const;  // the id of a token; nullopt when the file names none

  const GgufTensor* tensor(std::string_view name) const;  // nullptr when there is none
  // Returns the elements of a small f32 tensor, each converted by shortest_double(); empty when there is no such
  // tensor.
  std::vector<double> floats(std::string_view tensor) const;

 private:
  int64_t integer_of(const std::string& key, bool skips_zeros) const;
  std::string full(const std::string& key) const { return key.starts_with('.') ? architecture_ + key : key; }

  const GgufHeader& header_;
  std::vector<std::span<const std::byte>> parts_;
  std::string file_, architecture_;
};

}  // namespace fettle
