#include "checkpoint/gguf/write/gguf_parts.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"

namespace fettle {

GgufParts::GgufParts(const std::filesystem::path& folder, const std::string& stem, const GgufMetadata& metadata,
                     const std::vector<GgufTensor>& tensors, int64_t most) {
  std::vector<std::vector<GgufTensor>> parts(1);
  int64_t size = 0;
  for (const GgufTensor& tensor : tensors) {
    const int64_t bytes = bytes_of(tensor.dims, *tensor.type);
    if (most > 0 && size > 0 && size + bytes > most) parts.emplace_back(), size = 0;
    size += bytes;
    places_.push_back({parts.size() - 1, parts.back().size()});
    parts.back().push_back(tensor);
  }
  if (parts.size() == 1) {
    writers_.emplace_back(folder / (stem + ".gguf"), metadata, std::move(parts[0]));
    return;
  }
  if (parts.size() > std::numeric_limits<uint16_t>::max())
    throw UserError("export_size gives {} files; GGUF allows {}: raise export_size", parts.size(),
                    std::numeric_limits<uint16_t>::max());
  for (size_t i = 0; i < parts.size(); ++i) {
    GgufMetadata keys = i == 0 ? metadata : GgufMetadata(metadata.architecture());
    keys.set("split.no", static_cast<uint16_t>(i));
    keys.set("split.count", static_cast<uint16_t>(parts.size()));
    keys.set("split.tensors.count", static_cast<int32_t>(tensors.size()));
    writers_.emplace_back(folder / fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, parts.size()), keys,
                          std::move(parts[i]));
  }
}

int64_t GgufParts::bytes() const {
  int64_t sum = 0;
  for (const GgufWriter& writer : writers_) sum += writer.bytes();
  return sum;
}

void GgufParts::write(size_t tensor, std::span<const std::byte> bytes, int64_t at) {
  internal_check(tensor < places_.size(), "GgufParts: there is no tensor {}", tensor);
  writers_[places_[tensor].file].write(places_[tensor].tensor, bytes, at);
}

void GgufParts::finish() {
  for (GgufWriter& writer : writers_) writer.finish();
}

}  // namespace fettle
