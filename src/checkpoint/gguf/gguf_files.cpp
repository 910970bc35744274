#include "checkpoint/gguf/gguf_files.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "checkpoint/gguf/places.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

class OpenedGguf : public TensorFile {
 public:
  OpenedGguf(MappedFile map, std::vector<TensorEntry> entries) : TensorFile(std::move(map), std::move(entries)) {}
};

// Returns N when `name` ends with -00001-of-0000N.gguf, the name of a first part; 0 for any other name.
int64_t parts_in_name(const std::string& name) {
  constexpr std::string_view kFirst = "-00001-of-", kEnding = ".gguf";
  constexpr size_t kDigits = 5, kTail = kFirst.size() + kDigits + kEnding.size();
  if (name.size() < kTail || !name.ends_with(kEnding)) return 0;
  const std::string tail = name.substr(name.size() - kTail), digits = tail.substr(kFirst.size(), kDigits);
  if (!tail.starts_with(kFirst) || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoll(digits);
}

}  // namespace

fs::path gguf_path(const fs::path& file) {
  std::error_code code;
  fs::path path = fs::absolute(file);
  for (int links = 0; links < 40 && parts_in_name(path.filename().string()) <= 1; ++links) {
    const fs::path target = fs::read_symlink(path, code);
    if (code) break;
    path = path.parent_path() / target;
  }
  const fs::path folder = fs::canonical(path.parent_path(), code);
  return code ? path : folder / path.filename();
}

std::vector<fs::path> gguf_parts(const fs::path& file) {
  const std::string name = file.filename().string();
  const int64_t count = parts_in_name(name);
  if (count <= 1) return {file};
  const std::string stem = name.substr(0, name.size() - std::string_view("-00001-of-00002.gguf").size());
  std::vector<fs::path> parts;
  for (int64_t part = 1; part <= count; ++part)
    parts.push_back(file.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count));
  return parts;
}

std::vector<fs::path> existing_parts(const fs::path& first, const GgufFields& fields) {
  const int64_t count = std::min<int64_t>(fields.integer("split.count", 1), 99999);
  if (count <= 1) return {first};
  if (parts_in_name(first.filename().string()) != count)
    throw UserError("{}: this file is one part of a model in {} files; name the first one, whose name ends with {}",
                    first.string(), count, fmt::format("-00001-of-{:05}.gguf", count));
  std::vector<fs::path> parts = gguf_parts(first);
  for (const fs::path& part : parts)
    if (!fs::exists(part)) throw UserError("{}: the part {} is missing; download it", first.string(), part.string());
  return parts;
}

std::vector<TensorFile> open_gguf(const fs::path& path) {
  MappedFile first(gguf_path(path));
  const std::string name = first.path().string();
  const GgufHeader header = read_gguf_header(first.bytes(), name);
  const GgufFields fields(header, {first.bytes()}, name);
  const GgufFamily& family = gguf_family_of(fields);
  const int64_t heads = fields.of_layers(".attention.head_count");
  GgufHeads numbers{.heads = heads,
                    .kv_heads = family.storage.pairs_rows ? fields.of_layers(".attention.head_count_kv", heads) : heads,
                    .groups = fields.integer(".ssm.group_count", 1),
                    .values = fields.integer(".ssm.time_step_rank", 1),
                    .key_dim = fields.integer(".ssm.state_size", 0),
                    .value_dim = fields.integer(".attention.value_length_mla", fields.integer(".ssm.state_size", 0))};
  if (fields.has(".attention.key_length_mla"))
    numbers.plain_dim = fields.integer(".attention.key_length_mla") - fields.integer(".rope.dimension_count");
  if (heads > 0) numbers.head_dim = fields.integer(".embedding_length", 0) / heads;
  if (has_experts_in_one(family) && fields.integer(".expert_count", 0) > 0) {
    numbers.experts = fields.integer(".expert_count");
    numbers.expert_size = fields.has(".expert_feed_forward_length") ? fields.integer(".expert_feed_forward_length")
                                                                    : fields.integer(".feed_forward_length");
    numbers.width = fields.integer(".embedding_length");
  }
  if (has_gates_and_ups_in_one(family))
    numbers.shared_size =
        fields.integer(numbers.experts > 0 ? ".expert_shared_feed_forward_length" : ".feed_forward_length");
  if (fields.has(".nextn_predict_layers")) numbers.layers = fields.layers();
  const GgufPlaces places(family, numbers, name);
  std::vector<TensorFile> files;
  const std::vector<fs::path> parts = existing_parts(first.path(), fields);
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
