#include "checkpoint/gguf/gguf_files.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/gguf/places.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

class OpenedGguf : public TensorFile {
 public:
  OpenedGguf(MappedFile map, std::vector<TensorEntry> entries) : TensorFile(std::move(map), std::move(entries)) {}
};

// Returns the paths of all parts. Part numbers in a file's name count from 1.
std::vector<fs::path> parts_of(const fs::path& first, int64_t count) {
  if (count <= 1) return {first};
  const std::string name = first.filename().string(), ending = fmt::format("-00001-of-{:05}.gguf", count);
  if (!name.ends_with(ending))
    throw UserError("{}: it is a part of a model in {} files; give the first one, whose name ends with {}",
                    first.string(), count, ending);
  std::vector<fs::path> parts;
  for (int64_t part = 1; part <= count; ++part) {
    parts.push_back(first.parent_path() /
                    fmt::format("{}-{:05}-of-{:05}.gguf", name.substr(0, name.size() - ending.size()), part, count));
    if (!fs::exists(parts.back()))
      throw UserError("{}: the part {} is missing; download it", first.string(), parts.back().string());
  }
  return parts;
}

}  // namespace

std::vector<TensorFile> open_gguf(const fs::path& path) {
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  MappedFile first(real.empty() ? path : real);
  const std::string name = first.path().string();
  const GgufHeader header = read_gguf_header(first.bytes(), name);
  const GgufFields fields(header, first.bytes(), name);
  const int64_t heads = fields.integer(".attention.head_count");
  const GgufPlaces places(gguf_family_of(fields), heads, fields.integer(".attention.head_count_kv", heads), name);
  std::vector<TensorFile> files;
  const std::vector<fs::path> parts =
      parts_of(first.path(), std::min<int64_t>(fields.integer("split.count", 1), 99999));
  for (size_t i = 0; i < parts.size(); ++i) {
    MappedFile map = i == 0 ? std::move(first) : MappedFile(parts[i]);
    const GgufHeader others = i == 0 ? GgufHeader() : read_gguf_header(map.bytes(), parts[i].string());
    std::vector<TensorEntry> entries;
    for (const GgufTensor& tensor : i == 0 ? header.tensors : others.tensors) places.add(tensor, entries);
    map.check();
    files.push_back(OpenedGguf(std::move(map), std::move(entries)));
  }
  return files;
}

}  // namespace fettle
