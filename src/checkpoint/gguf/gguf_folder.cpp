#include "checkpoint/gguf/gguf_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/tokenizer_files.h"
#include "checkpoint/saved/atomic_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderVersion = "5";  // raise this when a new Fettle writes the folder's files differently

constexpr const char* kTemplate = "chat_template.jinja";

// Returns whether `folder` is like those that gguf_folder makes.
bool is_unpacked(const fs::path& folder) {
  return fs::is_symlink(folder / kGgufWeights) && fs::exists(folder / "config.json");
}

bool has_other_weights(const fs::path& folder) {
  return is_unpacked(folder) ||
         std::ranges::any_of(std::initializer_list<const char*>{"model.safetensors", "model.safetensors.index.json",
                                                                "pytorch_model.bin", "pytorch_model.bin.index.json"},
                             [&](const char* name) { return fs::exists(folder / name); });
}

std::vector<fs::path> gguf_models_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_gguf_model(entry.path().filename().string())) found.push_back(entry.path());
  return found;
}

// Returns the chat template that the user put beside the GGUF file, to be used instead of the file's own. Returns
// nullopt when there is none. Warns when the folder has several models, since the template may belong to another one.
std::optional<std::string> template_beside(const fs::path& file) {
  const fs::path folder = fs::absolute(file).parent_path(), path = folder / kTemplate;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  if (gguf_models_in(folder).size() > 1) {
    warn(
        "{} is not used, because its folder has several GGUF models; put the template and one model into a folder of "
        "their own",
        path.string());
    return std::nullopt;
  }
  info("the chat template is {}, not the one in the GGUF file", path.string());
  return read_file(path);
}

// Maps the files after the first one, and adds their tensors to the header of the first one.
void add_parts(const fs::path& first, GgufHeader& header, std::vector<MappedFile>& maps) {
  const std::vector<fs::path> parts = existing_parts(first, GgufFields(header, {maps.front().bytes()}, first.string()));
  for (size_t part = 1; part < parts.size(); ++part) {
    maps.emplace_back(parts[part]);
    GgufHeader other = read_gguf_header(maps.back().bytes(), parts[part].string());
    for (GgufTensor& tensor : other.tensors) {
      tensor.part = part;
      header.tensors.push_back(std::move(tensor));
    }
  }
}

}  // namespace

bool is_gguf_model(const std::string& name) {
  if (!name.ends_with(".gguf") || name.starts_with("mmproj")) return false;
  constexpr size_t kEnding = 20;  // the length of "-00002-of-00003.gguf"
  if (name.size() < kEnding || name.substr(name.size() - kEnding + 6, 4) != "-of-") return true;
  return name.substr(name.size() - kEnding, 6) == "-00001";
}

std::optional<fs::path> find_gguf(const fs::path& model) {
  std::error_code ignored;
  if (model.extension() == ".gguf" && fs::is_regular_file(model, ignored)) return model;
  if (!fs::is_directory(model, ignored) || has_other_weights(model)) return std::nullopt;
  const std::vector<fs::path> found = gguf_models_in(model);
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return found[0];
  std::vector<std::string> names;
  for (const fs::path& path : found) names.push_back(path.filename().string());
  std::sort(names.begin(), names.end());
  throw UserError("{} has {} GGUF models: {}; set model_name_or_path to one of these files", model.string(),
                  names.size(), fmt::join(names, ", "));
}

fs::path gguf_folder(const fs::path& file) {
  std::error_code code;
  const fs::path real = gguf_path(file);
  if (!fs::exists(real, code)) throw_file_error("read", file, code ? code.value() : ENOENT);
  ContentKey key;
  key.add(kFolderVersion).add(real.string());
  for (const fs::path& part : gguf_parts(real)) {
    const auto changed = fs::last_write_time(part, code).time_since_epoch().count();
    key.add(std::to_string(fs::file_size(part, code))).add(std::to_string(changed));
  }
  const std::optional<std::string> other = template_beside(file);
  if (other) key.add(kTemplate).add(*other);
  const fs::path folder = cache_folder("gguf") / key.text();
  if (fs::exists(folder / "config.json")) return folder;
  require_writable(folder.parent_path());

  AtomicFolder made(folder, AtomicFolder::Existing::kReplace);
  write_gguf_folder(real, made.path());
  if (other) write_file(made.path() / kTemplate, *other);
  made.commit();
  return folder;
}

void write_gguf_folder(const fs::path& file, const fs::path& folder) {
  std::error_code code;
  const fs::path real = gguf_path(file);
  std::vector<MappedFile> maps;
  maps.emplace_back(real);
  GgufHeader header = read_gguf_header(maps.front().bytes(), real.string());
  add_parts(real, header, maps);
  std::vector<std::span<const std::byte>> bytes;
  for (const MappedFile& map : maps) bytes.push_back(map.bytes());
  const GgufFields fields(header, std::move(bytes), real.string());
  const GgufFamily& family = gguf_family_of(fields);
  fs::create_directories(folder, code);
  if (code) throw_file_error("create", folder, code.value());
  write_gguf_tokenizer(fields, folder);
  write_json_file(folder / "config.json", gguf_config(family, fields));
  for (const MappedFile& map : maps) map.check();
  fs::create_symlink(real, folder / kGgufWeights, code);
  if (code) throw_file_error("create", folder / kGgufWeights, code.value());
}

}  // namespace fettle
