#include "checkpoint/changed/changed_folder.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/cache.h"
#include "checkpoint/files.h"
#include "checkpoint/saved/atomic_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChangedVersion = "1";  // of the folder's files; changes when Fettle writes others

// The files of a model folder, by name, with links resolved.
std::map<std::string, fs::path> linked_files(const fs::path& model) {
  std::map<std::string, fs::path> files;
  std::error_code code;
  fs::directory_iterator it(model, code), end;
  if (code) throw_file_error("read", model, code.value());
  for (; it != end; ++it)
    if (it->is_regular_file(code)) files[it->path().filename().string()] = fs::canonical(it->path());
  return files;
}

std::string changed_key(const std::map<std::string, fs::path>& files, const nlohmann::json& config) {
  ContentKey key;
  key.add(kChangedVersion).add(config.dump());
  for (const auto& [name, path] : files) {
    std::error_code code;
    const auto changed = fs::last_write_time(path, code).time_since_epoch().count();
    key.add(name).add(path.string()).add(std::to_string(fs::file_size(path, code))).add(std::to_string(changed));
  }
  return key.text();
}

}  // namespace

fs::path changed_folder(const fs::path& model, const ModelChanges& changes) {
  const fs::path file = model / "config.json";
  if (!changes.any() || !fs::exists(file)) return model;
  nlohmann::json config = read_json_file(file);
  const bool scaled = changes.rope.asked() && scale_rope(config, changes.rope, file.string());
  if (!scaled) return model;
  const std::map<std::string, fs::path> files = linked_files(model);
  const fs::path folder = cache_folder("models") / changed_key(files, config);
  if (fs::exists(folder / "config.json")) return folder;
  AtomicFolder made(folder, AtomicFolder::Existing::kReplace);
  for (const auto& [name, path] : files) {
    if (name == "config.json") continue;
    std::error_code code;
    fs::create_symlink(path, made.path() / name, code);
    if (code) throw_file_error("create", made.path() / name, code.value());
  }
  write_json_file(made.path() / "config.json", config);
  made.commit();
  return folder;
}

}  // namespace fettle
