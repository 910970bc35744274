#include "checkpoint/gguf/fields.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json_text.h"

namespace fettle {

GgufFields::GgufFields(const GgufHeader& header, std::vector<std::span<const std::byte>> parts, std::string file)
    : header_(header), parts_(std::move(parts)), file_(std::move(file)) {
  architecture_ = text("general.architecture", "");
  if (architecture_.empty())
    throw UserError("{}: it has no general.architecture; is it a language model's GGUF file?", file_);
}

const nlohmann::json* GgufFields::find(const std::string& key) const {
  const auto found = header_.values.find(full(key));
  return found == header_.values.end() ? nullptr : &found->second;
}

int64_t GgufFields::integer_of(const std::string& key, bool skips_zeros) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) throw UserError("{}: the key '{}' is missing", file_, full(key));
  const nlohmann::json* one = value;
  if (value->is_array() && !value->empty()) {
    const auto skipped = [&](const nlohmann::json& each) { return skips_zeros && each == 0; };
    const auto first = std::find_if_not(value->begin(), value->end(), skipped);
    one = first == value->end() ? &value->front() : &*first;
    if (std::any_of(value->begin(), value->end(),
                    [&](const nlohmann::json& other) { return other != *one && !skipped(other); }))
      throw UserError("{}: '{}' differs between layers ({}), which Fettle does not support", file_, full(key),
                      shown(*value));
  }
  if (!one->is_number_integer() || *one < 0 || *one > int64_t{1} << 40)
    throw UserError("{}: '{}' is {}, wanted an integer", file_, full(key), shown(*value));
  return one->get<int64_t>();
}

int64_t GgufFields::integer(const std::string& key) const {
  return integer_of(key, false);
}

int64_t GgufFields::integer(const std::string& key, int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}

int64_t GgufFields::in_layer(const std::string& key, int64_t layer) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_array()) return integer(key);
  const nlohmann::json one = layer >= 0 && layer < std::ssize(*value) ? (*value)[static_cast<size_t>(layer)] : *value;
  if (!one.is_number_integer() || one < 0 || one > int64_t{1} << 40)
    throw UserError("{}: '{}' is {}, wanted an integer for layer {}", file_, full(key), shown(*value), layer);
  return one.get<int64_t>();
}

int64_t GgufFields::of_layers(const std::string& key) const {
  return integer_of(key, true);
}

int64_t GgufFields::of_layers(const std::string& key, int64_t otherwise) const {
  return has(key) ? of_layers(key) : otherwise;
}

std::vector<int64_t> GgufFields::zero_layers(const std::string& key) const {
  std::vector<int64_t> out;
  const nlohmann::json* value = find(key);
  if (value == nullptr || !value->is_array()) return out;
  for (size_t layer = 0; layer < value->size(); ++layer)
    if ((*value)[layer] == 0) out.push_back(static_cast<int64_t>(layer));
  return out;
}

int64_t GgufFields::layers() const {
  const int64_t all = integer(".block_count"), others = integer(".nextn_predict_layers", 0);
  if (others > all) throw UserError("{}: nextn_predict_layers is {}, wanted 0 to {} (block_count)", file_, others, all);
  return all - others;
}

double GgufFields::number(const std::string& key, double otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) throw UserError("{}: '{}' is {}, wanted a number", file_, full(key), shown(*value));
  return value->get<double>();
}

bool GgufFields::flag(const std::string& key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) throw UserError("{}: '{}' is {}, wanted true or false", file_, full(key), shown(*value));
  return value->get<bool>();
}

std::string GgufFields::text(const std::string& key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) throw UserError("{}: '{}' is {}, wanted a string", file_, full(key), shown(*value));
  return value->get<std::string>();
}

std::optional<int64_t> GgufFields::id(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const int64_t id = integer(key);
  return id < int64_t{1} << 31 ? std::optional(id) : std::nullopt;  // 2^32 - 1 stands for no token
}

const GgufTensor* GgufFields::tensor(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const GgufTensor& tensor) { return tensor.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

std::vector<double> GgufFields::floats(std::string_view name) const {
  const GgufTensor* found = tensor(name);
  if (found == nullptr) return {};
  if (found->type->name != "F32" || found->bytes > int64_t{1} << 20)
    throw UserError("{}: tensor '{}' has {} bytes of type {}, wanted at most 1 MiB of type F32", file_, name,
                    found->bytes, found->type->name);
  std::vector<double> out;
  for (int64_t at = 0; at < found->bytes; at += static_cast<int64_t>(sizeof(float))) {
    float value;
    std::memcpy(&value, parts_.at(found->part).data() + found->offset + at, sizeof value);
    out.push_back(shortest_double(value));
  }
  return out;
}

}  // namespace fettle
