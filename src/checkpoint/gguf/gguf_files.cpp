#include "checkpoint/gguf/gguf_files.h"

#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"
#include "checkpoint/gguf/families.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

class OpenedGguf : public TensorFile {
 public:
  OpenedGguf(MappedFile map, std::vector<TensorEntry> entries) : TensorFile(std::move(map), std::move(entries)) {}
};

// "blk.12.attn_q" becomes "blk.{}.attn_q" and 12.
struct ModuleName {
  std::string module;
  std::optional<int64_t> layer;
  std::string ending;  // ".weight" or ".bias"
};

ModuleName split_name(const std::string& tensor) {
  ModuleName out{tensor, {}, {}};
  const size_t dot = tensor.rfind('.');
  if (dot != std::string::npos) out.module = tensor.substr(0, dot), out.ending = tensor.substr(dot);
  constexpr std::string_view kBlock = "blk.";
  if (!out.module.starts_with(kBlock)) return out;
  int64_t layer = 0;
  const char *begin = out.module.data() + kBlock.size(), *end = out.module.data() + out.module.size();
  const auto [rest, error] = std::from_chars(begin, end, layer);
  if (error != std::errc() || layer < 0) return out;
  out.layer = layer;
  out.module = std::string(kBlock) + "{}" + std::string(rest, end);
  return out;
}

std::string with_number(const std::string& name, int64_t number) {
  const size_t at = name.find("{}");
  return name.substr(0, at) + std::to_string(number) + name.substr(at + 2);
}

constexpr int64_t kMostExperts = 4096;  // of a layer

bool is_table_of_rope(const std::string& name) {
  return name.starts_with("rope_freqs.") || name.starts_with("rope_factors_") || name.ends_with(".attn_rot_embd");
}

DType dtype_of_type(const BlockType& type) {
  return type.name == "F32" ? DType::kF32 : type.name == "F16" ? DType::kF16 : DType::kBF16;
}

class Places {
 public:
  Places(const GgufFamily& family, const GgufFields& fields, std::string file)
      : family_(family),
        file_(std::move(file)),
        heads_(fields.integer(".attention.head_count")),
        kv_heads_(fields.integer(".attention.head_count_kv", heads_)) {
    for (const GgufName& name : family.names) hf_[name.gguf] = name.hf;
  }

  void add(const GgufTensor& tensor, std::vector<TensorEntry>& entries) const {
    if (is_table_of_rope(tensor.name)) return;
    const ModuleName name = split_name(tensor.name);
    const auto found = hf_.find(name.module);
    if (found == hf_.end() || (name.ending != ".weight" && name.ending != ".bias"))
      throw UserError(
          "{}: the tensor '{}' is unknown for the architecture '{}' ({}); Fettle does not support this model", file_,
          tensor.name, family_.architecture, family_.model_type);
    if (tensor.type->decode == nullptr)
      throw UserError(
          "{}: tensor '{}' has the type {}, which Fettle does not read; take a file of type F32, F16, BF16, Q8_0, "
          "Q6_K, "
          "Q5_K, Q4_K, Q3_K, Q2_K, Q5_1, Q5_0, Q4_1 or Q4_0",
          file_, tensor.name, tensor.type->name);
    const std::string layer_name = name.layer ? with_number(found->second, *name.layer) : found->second;
    TensorEntry entry = place(tensor, layer_name, name);
    if (layer_name.find("{}") == std::string::npos) {
      entry.name = layer_name + name.ending;
      entries.push_back(std::move(entry));
      return;
    }
    if (tensor.dims.size() < 2) throw UserError("{}: tensor '{}' has no dim for experts", file_, tensor.name);
    const int64_t experts = entry.shape.dims.front();
    if (experts > kMostExperts)
      throw UserError("{}: tensor '{}' has {} experts; Fettle reads up to {}", file_, tensor.name, experts,
                      kMostExperts);
    entry.shape.dims.erase(entry.shape.dims.begin());
    if (experts > 0) entry.bytes /= experts;
    for (int64_t expert = 0; expert < experts; ++expert) {
      entry.name = with_number(layer_name, expert) + name.ending;
      entries.push_back(entry);
      entry.offset += entry.bytes;
    }
  }

 private:
  TensorEntry place(const GgufTensor& tensor, const std::string& hf, const ModuleName& name) const {
    TensorEntry entry{tensor.name, {dtype_of_type(*tensor.type), tensor.dims}, tensor.offset, tensor.bytes, {}};
    Encoding encoding{tensor.type};
    if (family_.storage.pairs_rows && (hf.ends_with(".q_proj") || hf.ends_with(".k_proj")))
      encoding.swap = swap(tensor, hf.ends_with(".q_proj") ? heads_ : kv_heads_, 2);
    if (family_.storage.parts_first && hf.ends_with(".query_key_value")) encoding.swap = swap_parts(tensor);
    if (family_.storage.adds_one && name.module.ends_with("norm") && name.ending == ".weight") encoding.shift = -1;
    if (!tensor.type->is_float() || encoding.swap.swaps() || encoding.shift != 0) entry.encoding = encoding;
    if (family_.storage.transposes && name.ending == ".weight" && tensor.dims.size() == 2 &&
        hf.find(".c_") != std::string::npos) {
      entry.shape.dims = {tensor.dims[1], tensor.dims[0]};
      entry.strides = {1, tensor.dims[1]};
    }
    return entry;
  }

  // Each head's rows: the file has (pair, part), Hugging Face (part, pair).
  RowSwap swap(const GgufTensor& tensor, int64_t heads, int64_t parts) const {
    const int64_t rows = tensor.dims.front();
    if (heads <= 0 || rows % (heads * parts) != 0)
      throw UserError("{}: tensor '{}' has {} rows, which {} heads do not divide", file_, tensor.name, rows, heads);
    return {.first = parts, .second = rows / heads / parts, .inner = 1};
  }

  RowSwap swap_parts(const GgufTensor& tensor) const {
    const int64_t rows = tensor.dims.front();
    if (heads_ <= 0 || rows % (heads_ * 3) != 0)
      throw UserError("{}: tensor '{}' has {} rows, which {} heads do not divide", file_, tensor.name, rows, heads_);
    return {.first = heads_, .second = 3, .inner = rows / heads_ / 3};
  }

  const GgufFamily& family_;
  std::string file_;
  int64_t heads_, kv_heads_;
  std::map<std::string, std::string> hf_;
};

// Part numbers in a file's name count from 1. Returns the number of parts; 0 when it is not the name of a first part.
int64_t parts_in_name(const std::string& name) {
  constexpr std::string_view kFirst = "-00001-of-", kEnding = ".gguf";
  constexpr size_t kDigits = 5, kTail = kFirst.size() + kDigits + kEnding.size();
  if (name.size() < kTail || !name.ends_with(kEnding)) return 0;
  const std::string tail = name.substr(name.size() - kTail), digits = tail.substr(kFirst.size(), kDigits);
  if (!tail.starts_with(kFirst) || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoll(digits);
}

// Returns the paths of all parts of which the header counts `count`.
std::vector<fs::path> existing_parts(const fs::path& first, int64_t count) {
  if (count <= 1) return {first};
  if (parts_in_name(first.filename().string()) != count)
    throw UserError("{}: it is a part of a model in {} files; give the first one, whose name ends with {}",
                    first.string(), count, fmt::format("-00001-of-{:05}.gguf", count));
  std::vector<fs::path> parts = gguf_parts(first);
  for (const fs::path& part : parts)
    if (!fs::exists(part)) throw UserError("{}: the part {} is missing; download it", first.string(), part.string());
  return parts;
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

std::vector<TensorFile> open_gguf(const fs::path& path) {
  MappedFile first(gguf_path(path));
  const std::string name = first.path().string();
  const GgufHeader header = read_gguf_header(first.bytes(), name);
  const GgufFields fields(header, first.bytes(), name);
  const Places places(gguf_family_of(fields), fields, name);
  std::vector<TensorFile> files;
  const std::vector<fs::path> parts =
      existing_parts(first.path(), std::min<int64_t>(fields.integer("split.count", 1), 99999));
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
