#include "checkpoint/gguf/write/metadata.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace fettle {
namespace {

// Returns the number that stands for the type of a value in a file.
template <typename T>
constexpr uint32_t kind_of() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
}
constexpr uint32_t kArrayKind = 9;

class HeaderText {
 public:
  template <typename T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void text(const std::string& value) {
    number<uint64_t>(value.size());
    out_ += value;
  }

  template <typename T>
  void value(const T& value) {
    if constexpr (std::is_same_v<T, std::string>)
      text(value);
    else if constexpr (std::is_same_v<T, bool>)
      number<uint8_t>(value ? 1 : 0);
    else
      number<T>(value);
  }

  template <typename T>
  void typed(const T& one) {
    number<uint32_t>(kind_of<T>());
    value(one);
  }

  template <typename T>
  void typed(const std::vector<T>& list) {
    number<uint32_t>(kArrayKind);
    number<uint32_t>(kind_of<T>());
    number<uint64_t>(list.size());
    for (const T& each : list) value<T>(each);
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

nlohmann::json json_of(const GgufValue& value) {
  return std::visit(
      [](const auto& held) -> nlohmann::json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, float>) {
          return shortest_double(held);
        } else if constexpr (std::is_same_v<T, std::vector<float>>) {
          nlohmann::json list = nlohmann::json::array();
          for (const float each : held) list.push_back(shortest_double(each));
          return list;
        } else {
          return held;
        }
      },
      value);
}

}  // namespace

GgufMetadata::GgufMetadata(std::string architecture) : architecture_(std::move(architecture)) {
  set("general.architecture", architecture_);
}

void GgufMetadata::set(const std::string& key, GgufValue value) {
  const std::string full = key.starts_with('.') ? architecture_ + key : key;
  const auto found = std::ranges::find(values_, full, &std::pair<std::string, GgufValue>::first);
  if (found == values_.end())
    values_.emplace_back(full, std::move(value));
  else
    found->second = std::move(value);
}

void GgufMetadata::set_integer(const std::string& key, int64_t value) {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max())
    throw UserError("'{}' is {}, but GGUF stores it in 32 bits; wanted 0 to 2^32 - 1", key, value);
  set(key, static_cast<uint32_t>(value));
}

GgufHeader header_of(const GgufMetadata& metadata, std::vector<GgufTensor> tensors) {
  GgufHeader header;
  for (const auto& [key, value] : metadata.values()) header.values.emplace(key, json_of(value));
  header.tensors = std::move(tensors);
  return header;
}

int64_t gguf_aligned(int64_t offset) {
  return (offset + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::string header_bytes(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  HeaderText out;
  for (const char letter : std::string("GGUF")) out.number(letter);
  out.number<uint32_t>(3);
  out.number<uint64_t>(tensors.size());
  out.number<uint64_t>(metadata.values().size());
  for (const auto& [key, value] : metadata.values()) {
    out.text(key);
    std::visit([&](const auto& held) { out.typed(held); }, value);
  }
  for (const GgufTensor& tensor : tensors) {
    out.text(tensor.name);
    out.number(static_cast<uint32_t>(tensor.dims.size()));
    for (size_t d = tensor.dims.size(); d-- > 0;) out.number(static_cast<uint64_t>(tensor.dims[d]));
    out.number(tensor.type->number);
    out.number(static_cast<uint64_t>(tensor.offset));
  }
  std::string text = out.take();
  text.resize(static_cast<size_t>(gguf_aligned(static_cast<int64_t>(text.size()))), '\0');
  return text;
}

}  // namespace fettle
