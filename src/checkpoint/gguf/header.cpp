#include "checkpoint/gguf/header.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/error.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostDims = 4, kDefaultAlignment = 32;
constexpr uint64_t kMostElements = uint64_t{1} << 24;  // elements of a list; the largest vocabularies have 2^18
enum ValueKind : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

template <typename... Args>
[[noreturn]] void refuse(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  throw UserError("{}: the GGUF file is damaged: {}; download or convert it again", file,
                  fmt::format(format, std::forward<Args>(args)...));
}

class HeaderBytes {
 public:
  HeaderBytes(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  size_t at() const { return at_; }

  template <typename T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  std::string text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    const auto* bytes = reinterpret_cast<const char*>(take(length, what));
    return {bytes, static_cast<size_t>(length)};
  }

  Json value(uint32_t kind, const std::string& key) {
    switch (kind) {
      case kU8: return number<uint8_t>(key);
      case kI8: return number<int8_t>(key);
      case kU16: return number<uint16_t>(key);
      case kI16: return number<int16_t>(key);
      case kU32: return number<uint32_t>(key);
      case kI32: return number<int32_t>(key);
      case kF32: return shortest_double(number<float>(key));
      case kBool: return number<uint8_t>(key) != 0;
      case kString: return text(key);
      case kU64: return number<uint64_t>(key);
      case kI64: return number<int64_t>(key);
      case kF64: return number<double>(key);
      case kArray: return array(key);
      default: refuse(name_, "'{}' at byte {} has the unknown type {}", key, at_, kind);
    }
  }

 private:
  Json array(const std::string& key) {
    const auto kind = number<uint32_t>(key);
    const auto count = number<uint64_t>(key);
    if (kind == kArray) throw UserError("{}: '{}' is a list of lists, which Fettle does not read", name_, key);
    // Each element has at least one byte, so a list cannot have more elements than the file has bytes left.
    if (count > file_.size() - at_)
      refuse(name_, "'{}' is a list of {} elements, but the file ends {} bytes later", key, count, file_.size() - at_);
    if (count > kMostElements)
      refuse(name_, "'{}' is a list of {} elements; Fettle reads lists of up to {}", key, count, kMostElements);
    Json list = Json::array();
    for (uint64_t i = 0; i < count; ++i) list.push_back(value(kind, key));
    return list;
  }

  const std::byte* take(uint64_t bytes, std::string_view what) {
    if (bytes > file_.size() - at_)
      refuse(name_, "{} needs {} bytes at byte {}, but the file ends after {} (cut off?)", what, bytes, at_,
             file_.size());
    const std::byte* start = file_.data() + at_;
    at_ += static_cast<size_t>(bytes);
    return start;
  }

  std::span<const std::byte> file_;
  const std::string& name_;
  size_t at_ = 0;
};

void check_magic(std::span<const std::byte> file, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with("GGUF")) throw UserError("{}: is not a GGUF file: it does not begin with 'GGUF'", name);
}

void check_version(uint32_t version, const std::string& name) {
  if (version == 2 || version == 3) return;
  if (version == 0x02000000 || version == 0x03000000)
    throw UserError("{}: is a big-endian GGUF file; convert the model again on a little-endian machine", name);
  throw UserError("{}: has version {} of GGUF; Fettle reads 2 and 3; convert the model again with llama.cpp", name,
                  version);
}

// Reads the entry of one tensor. Its offset is relative to the first byte of the first tensor.
GgufTensor read_tensor(HeaderBytes& bytes, const std::string& file) {
  GgufTensor tensor;
  tensor.name = bytes.text("a tensor's name");
  const auto rank = bytes.number<uint32_t>(tensor.name);
  if (rank == 0 || rank > kMostDims)
    refuse(file, "tensor '{}' has {} dims; 1 to {} are possible", tensor.name, rank, kMostDims);
  int64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) {
    const auto size = bytes.number<uint64_t>(tensor.name);
    if (size == 0) refuse(file, "tensor '{}' has a dim of size 0", tensor.name);
    if (size > (uint64_t{1} << 62) || __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements))
      refuse(file, "tensor '{}': its size overflows", tensor.name);
    tensor.dims.insert(tensor.dims.begin(), static_cast<int64_t>(size));
  }
  const auto number = bytes.number<uint32_t>(tensor.name);
  tensor.type = find_block_type(number);
  if (tensor.type == nullptr)
    throw UserError(
        "{}: tensor '{}' has a type with the number {}, which this version of Fettle does not know; take a file of "
        "type {}",
        file, tensor.name, number, kReadTypes);
  const BlockType& type = *tensor.type;
  if (tensor.dims.back() % type.elements != 0)
    refuse(file, "tensor '{}': rows of {} elements are not whole blocks of {}", tensor.name, tensor.dims.back(),
           type.elements);
  if (__builtin_mul_overflow(elements / type.elements, type.bytes, &tensor.bytes))
    refuse(file, "tensor '{}': its size overflows", tensor.name);
  const auto offset = bytes.number<uint64_t>(tensor.name);
  if (offset > (uint64_t{1} << 62)) refuse(file, "tensor '{}': its offset {} overflows", tensor.name, offset);
  tensor.offset = static_cast<int64_t>(offset);
  return tensor;
}

int64_t alignment_of(const GgufHeader& header, const std::string& file) {
  const auto found = header.values.find("general.alignment");
  if (found == header.values.end()) return kDefaultAlignment;
  const Json& value = found->second;
  const bool good = value.is_number_unsigned() && value > 0u && value <= 1u << 20;
  const int64_t alignment = good ? value.get<int64_t>() : 0;
  if (!good || (alignment & (alignment - 1)) != 0)
    refuse(file, "general.alignment is {}, wanted a power of two",
           value.dump(-1, ' ', true, Json::error_handler_t::replace));
  return alignment;
}

// Makes the offsets relative to the start of the file and sorts the tensors by offset. Throws UserError when tensors
// overlap or lie outside of the file.
void place_tensors(GgufHeader& header, size_t end_of_header, size_t file_bytes, const std::string& file) {
  const int64_t alignment = alignment_of(header, file);
  const int64_t size = static_cast<int64_t>(file_bytes);
  const int64_t start = (static_cast<int64_t>(end_of_header) + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.offset % alignment != 0)
      refuse(file, "tensor '{}' at offset {} is not aligned to {} bytes", tensor.name, tensor.offset, alignment);
    if (start > size || tensor.offset > size - start || tensor.bytes > size - start - tensor.offset)
      refuse(file, "tensor '{}' has {} bytes at offset {}, but the file has {} bytes of tensors (cut off?)",
             tensor.name, tensor.bytes, tensor.offset, std::max<int64_t>(0, size - start));
    tensor.offset += start;
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const GgufTensor& a, const GgufTensor& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    const GgufTensor &before = header.tensors[i - 1], &tensor = header.tensors[i];
    if (before.offset + before.bytes > tensor.offset)
      refuse(file, "tensors '{}' and '{}' overlap", before.name, tensor.name);
  }
}

}  // namespace

double shortest_double(float value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{}", value).c_str(), nullptr) : static_cast<double>(value);
}

GgufHeader read_gguf_header(std::span<const std::byte> file, const std::string& name) {
  check_magic(file, name);
  HeaderBytes bytes(file, name);
  bytes.number<uint32_t>("the magic word");
  check_version(bytes.number<uint32_t>("the version"), name);
  const auto tensors = bytes.number<uint64_t>("the number of tensors");
  const auto values = bytes.number<uint64_t>("the number of keys");
  GgufHeader header;
  for (uint64_t i = 0; i < values; ++i) {
    const std::string key = bytes.text("a key");
    const auto kind = bytes.number<uint32_t>(key);
    if (!header.values.emplace(key, bytes.value(kind, key)).second) refuse(name, "the key '{}' occurs twice", key);
  }
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(bytes, name));
    const std::string& tensor = header.tensors.back().name;
    if (!names.insert(tensor).second) refuse(name, "the tensor '{}' occurs twice", tensor);
  }
  place_tensors(header, bytes.at(), file.size(), name);
  return header;
}

}  // namespace fettle
