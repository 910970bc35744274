#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "checkpoint/convert.h"

namespace fettle {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // limit of the format

struct RawEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape, offsets;
};

// Reads the header event by event, so that it detects deep nesting and repeated names in a hostile header.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<RawEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string failure;

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t number) override { return fail("{} is negative", number); }
  bool number_float(number_float_t, const string_t& text) override { return fail("{} is not a whole number", text); }
  bool binary(binary_t&) override { return value("binary"); }
  bool number_unsigned(number_unsigned_t number) override;
  bool string(string_t& text) override;
  bool start_object(std::size_t) override;
  bool key(string_t& text) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return fail("not valid JSON at byte {} of the header", position);
  }

 private:
  // The reader's place in the header: the value that it expects next, or the object or array whose items it reads.
  enum class At { kStart, kNames, kMetadataValue, kMetadata, kMetadataText, kEntry, kFields, kField, kArray, kEnd };

  template <typename... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    failure = where() + fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  std::string where() const {
    if (at_ == At::kStart || at_ == At::kNames || at_ == At::kEnd) return "";
    if (at_ == At::kMetadata || at_ == At::kMetadataValue || at_ == At::kMetadataText) return "__metadata__: ";
    return fmt::format("tensor '{}'{}: ", entries.back().name, field_.empty() ? "" : " " + field_);
  }
  bool value(std::string_view found) {
    std::string_view wanted = "an object";
    if (at_ == At::kMetadataText) wanted = "a string";
    if (at_ == At::kArray) wanted = "a whole number";
    if (at_ == At::kField) wanted = field_ == "dtype" ? "a string" : "an array";
    return fail("found {}, wanted {}", found, wanted);
  }

  At at_ = At::kStart;
  std::string field_, metadata_key_;
  std::unordered_set<std::string> names_;
};

bool HeaderReader::number_unsigned(number_unsigned_t number) {
  if (at_ != At::kArray) return value("a number");
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return fail("{} is too large", number);
  RawEntry& entry = entries.back();
  (field_ == "shape" ? *entry.shape : *entry.offsets).push_back(static_cast<int64_t>(number));
  return true;
}

bool HeaderReader::string(string_t& text) {
  if (at_ == At::kMetadataText) {
    metadata[metadata_key_] = text;
    at_ = At::kMetadata;
    return true;
  }
  if (at_ != At::kField || field_ != "dtype") return value("a string");
  entries.back().dtype = text;
  at_ = At::kFields;
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (at_ == At::kStart)
    at_ = At::kNames;
  else if (at_ == At::kMetadataValue)
    at_ = At::kMetadata;
  else if (at_ == At::kEntry)
    at_ = At::kFields;
  else
    return value("an object");
  return true;
}

bool HeaderReader::key(string_t& text) {
  if (at_ == At::kNames) {
    if (!names_.insert(text).second) return fail("the name '{}' occurs twice", text);
    if (text == "__metadata__") {
      at_ = At::kMetadataValue;
    } else {
      entries.push_back({text, {}, {}, {}});
      at_ = At::kEntry;
    }
    return true;
  }
  if (at_ == At::kMetadata) {
    if (metadata.count(text) != 0) return fail("the key '{}' occurs twice", text);
    metadata_key_ = text;
    at_ = At::kMetadataText;
    return true;
  }
  const RawEntry& entry = entries.back();
  field_.clear();
  if (text != "dtype" && text != "shape" && text != "data_offsets")
    return fail("unknown field '{}'; known are dtype, shape and data_offsets", text);
  if ((text == "dtype" && entry.dtype) || (text == "shape" && entry.shape) || (text == "data_offsets" && entry.offsets))
    return fail("'{}' occurs twice", text);
  field_ = text;
  at_ = At::kField;
  return true;
}

bool HeaderReader::end_object() {
  if (at_ == At::kFields) {
    const RawEntry& entry = entries.back();
    field_.clear();
    if (!entry.dtype) return fail("no 'dtype'");
    if (!entry.shape) return fail("no 'shape'");
    if (!entry.offsets || entry.offsets->size() != 2) return fail("no 'data_offsets' with two numbers");
    at_ = At::kNames;
  } else {
    at_ = at_ == At::kMetadata ? At::kNames : At::kEnd;
  }
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (at_ != At::kField || field_ == "dtype") return value("an array");
  RawEntry& entry = entries.back();
  (field_ == "shape" ? entry.shape : entry.offsets).emplace();
  at_ = At::kArray;
  return true;
}

bool HeaderReader::end_array() {
  at_ = At::kFields;
  return true;
}

// Throws UserError about the header of `path`. The remedy is the same for every fault.
template <typename... Args>
[[noreturn]] void refuse_file(const std::filesystem::path& path, fmt::format_string<Args...> format, Args&&... args) {
  throw UserError("{}: the safetensors file is damaged: {}; download or save it again", path.string(),
                  fmt::format(format, std::forward<Args>(args)...));
}

// Checks an entry and makes its offset relative to the start of the file. `data_start` is the position of the first
// tensor's first byte.
TensorEntry check_entry(const std::filesystem::path& path, RawEntry& raw, int64_t data_start, int64_t data_bytes) {
  const int64_t begin = (*raw.offsets)[0], end = (*raw.offsets)[1];
  TensorEntry entry{std::move(raw.name), {DType::kF32, std::move(*raw.shape)}, begin, end - begin};
  try {
    entry.shape.dtype = dtype_from_safetensors(*raw.dtype);
  } catch (const UserError& error) {
    throw UserError("{}: tensor '{}': {}", path.string(), entry.name, error.what());
  }
  if (begin > end)
    refuse_file(path, "tensor '{}': data_offsets [{}, {}] end before they begin", entry.name, begin, end);
  if (end > data_bytes)
    refuse_file(path, "tensor '{}': data_offsets [{}, {}] end beyond the {} bytes of data that the file has (cut off?)",
                entry.name, begin, end, data_bytes);
  int64_t bytes = byte_size(entry.shape.dtype);
  for (int64_t d : entry.shape.dims)
    if (__builtin_mul_overflow(bytes, d, &bytes))
      refuse_file(path, "tensor '{}': the size of {} overflows", entry.name, entry.shape.to_string());
  if (bytes != entry.bytes)
    refuse_file(path, "tensor '{}': data_offsets [{}, {}] cover {} bytes, but {} needs {}", entry.name, begin, end,
                entry.bytes, entry.shape.to_string(), bytes);
  entry.offset += data_start;
  return entry;
}

// Checks that the tensors fill the data without holes or overlaps.
void check_cover(const std::filesystem::path& path, const std::vector<TensorEntry>& entries, int64_t data_start,
                 int64_t data_bytes) {
  int64_t covered = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : entries) {
    const int64_t begin = entry.offset - data_start;
    if (begin < covered)
      refuse_file(path, "tensor '{}' at offset {} overlaps '{}', which ends at {}", entry.name, begin, before->name,
                  covered);
    if (begin > covered)
      refuse_file(path, "tensor '{}' starts at offset {}: there is a hole of {} bytes before it", entry.name, begin,
                  begin - covered);
    covered = begin + entry.bytes;
    before = &entry;
  }
  if (covered != data_bytes)
    refuse_file(path, "{} bytes follow the last tensor, at offset {}", data_bytes - covered, covered);
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile map(path);
  const std::span<const std::byte> all = map.bytes();
  const std::string_view text(reinterpret_cast<const char*>(all.data()), all.size());
  if (all.size() < 8) refuse_file(path, "it has {} bytes, but the header's length alone takes 8", all.size());
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint64_t>(all[static_cast<size_t>(i)]);
  if (header_bytes > kMaxHeaderBytes)
    refuse_file(path, "the first 8 bytes give a header of {} bytes; at most {} are allowed", header_bytes,
                kMaxHeaderBytes);
  if (header_bytes > all.size() - 8)
    refuse_file(path, "the header has {} bytes but the file ends after {} (cut off?)", header_bytes, all.size() - 8);
  const std::string_view header = text.substr(8, header_bytes);
  if (!header.starts_with('{')) refuse_file(path, "the header does not start with '{{'");

  HeaderReader reader;
  if (!Json::sax_parse(header.begin(), header.end(), &reader)) {
    map.check();
    refuse_file(path, "{}", reader.failure);
  }
  const int64_t data_start = 8 + static_cast<int64_t>(header_bytes);
  const int64_t data_bytes = static_cast<int64_t>(all.size()) - data_start;
  std::vector<TensorEntry> entries;
  entries.reserve(reader.entries.size());
  for (RawEntry& raw : reader.entries) entries.push_back(check_entry(path, raw, data_start, data_bytes));
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  check_cover(path, entries, data_start, data_bytes);
  map.check();
  return {std::move(map), std::move(entries), std::move(reader.metadata)};
}

}  // namespace fettle
