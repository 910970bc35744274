#include "checkpoint/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "checkpoint/tensor_output.h"

namespace fettle {
namespace {

// Ranks dtypes as Hugging Face's library does. Tensors whose dtype has the highest rank come first in a file.
int rank_of(DType dtype) {
  constexpr std::array kOrder{DType::kPred, DType::kU8,  DType::kI8,   DType::kF8E4M3FN, DType::kI16,
                              DType::kU16,  DType::kF16, DType::kBF16, DType::kI32,      DType::kU32,
                              DType::kF32,  DType::kF64, DType::kI64,  DType::kU64};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), dtype) - kOrder.begin());
}

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump();
}

std::vector<TensorOutput::Place> places_of(const std::vector<TensorEntry>& entries) {
  std::vector<TensorOutput::Place> out;
  for (const TensorEntry& entry : entries) out.push_back({entry.name, entry.offset, entry.bytes});
  return out;
}

}  // namespace

SafetensorsWriter::Layout SafetensorsWriter::lay_out(const NamedShapes& tensors,
                                                     const std::map<std::string, std::string>& metadata) {
  std::vector<TensorEntry> entries;
  std::set<std::string_view> names;
  for (const auto& [name, shape] : tensors) {
    internal_check(names.insert(name).second, "SafetensorsWriter: two tensors are called '{}'", name);
    entries.push_back({name, shape, 0, shape.bytes()});
  }
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    const int a_rank = rank_of(a.shape.dtype), b_rank = rank_of(b.shape.dtype);
    return a_rank != b_rank ? a_rank > b_rank : a.name < b.name;
  });

  std::string header = "{";
  const auto add = [&](const std::string& key, const std::string& value) {
    if (header.size() > 1) header += ',';
    header += quote(key) + ':' + value;
  };
  if (!metadata.empty()) add("__metadata__", nlohmann::json(metadata).dump());
  int64_t offset = 0;
  for (TensorEntry& entry : entries) {
    entry.offset = offset;
    offset += entry.bytes;
    add(entry.name,
        fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", safetensors_name(entry.shape.dtype),
                    nlohmann::json(entry.shape.dims).dump(), entry.offset, offset));
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');

  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  header = length + header;
  for (TensorEntry& entry : entries) entry.offset += static_cast<int64_t>(header.size());
  return {std::move(entries), std::move(header)};
}

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, const NamedShapes& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : SafetensorsWriter(lay_out(tensors, metadata), std::move(path)) {}

SafetensorsWriter::SafetensorsWriter(Layout layout, std::filesystem::path path)
    : entries_(std::move(layout.entries)),
      output_(std::move(path), entries_.empty() ? 0 : entries_.back().offset + entries_.back().bytes, layout.header,
              places_of(entries_)) {
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> bytes, int64_t at) {
  const auto found = index_.find(name);
  internal_check(found != index_.end(), "{}: tensor '{}' was not declared", path().string(), name);
  output_.write(found->second, bytes, at);
}

}  // namespace fettle
