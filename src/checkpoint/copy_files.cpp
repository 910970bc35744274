#include "checkpoint/copy_files.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "checkpoint/model_files.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

void copy_one(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (fs::equivalent(from, to, code)) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, code);
  if (code) throw_file_error("copy", from, code.value());
}

// Adds the modules that `named` refers to. `named` is the auto_map of a config, or a value in it. Both "modeling_x.X"
// and "user/repository--modeling_x.X" add "modeling_x". Ignores null.
void add_modules(const Json& named, std::vector<std::string>& modules) {
  if (named.is_structured())
    for (const Json& item : named) add_modules(item, modules);
  if (!named.is_string()) return;
  std::string name = named.get<std::string>();
  if (const size_t repository = name.find("--"); repository != std::string::npos) name = name.substr(repository + 2);
  modules.push_back(name.substr(0, name.find('.')));
}

// Returns the modules that a Python file imports from its own folder: "name" for each line "from .name import ...".
std::vector<std::string> relative_imports(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  auto skip_blanks = [&](std::string_view line) {
    return line.substr(std::min(line.find_first_not_of(kBlanks), line.size()));
  };
  std::vector<std::string> modules;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = skip_blanks(text.substr(begin, end - begin));
    if (!line.starts_with("from ") && !line.starts_with("from\t")) continue;
    line = skip_blanks(line.substr(4));
    if (!line.starts_with('.')) continue;
    line.remove_prefix(1);
    const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) || c == '_');
    });
    if (is_name && skip_blanks(line.substr(name.size())).starts_with("import")) modules.emplace_back(name);
  }
  return modules;
}

// Returns the files of remote code: the modules that auto_map names in the configs, and the modules that these import
// from the folder.
std::set<std::string> remote_code(const fs::path& folder) {
  std::vector<std::string> modules;
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    if (!fs::exists(folder / name)) continue;
    const Json config = read_json_file(folder / name);
    if (config.is_object() && config.contains("auto_map")) add_modules(config["auto_map"], modules);
  }
  std::set<std::string> files;
  while (!modules.empty()) {
    const std::string name = modules.back() + ".py";
    modules.pop_back();
    std::ifstream file(folder / name);
    if (!file || !files.insert(name).second) continue;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::string& module : relative_imports(text)) modules.push_back(std::move(module));
  }
  return files;
}

void copy_files(const fs::path& from, const fs::path& to, const std::function<bool(const std::string&)>& wanted) {
  std::error_code code;
  fs::directory_iterator it(from, code), end;
  if (code) throw_file_error("read", from, code.value());
  for (; it != end; ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_regular_file() && wanted(name)) copy_one(it->path(), to / name);
  }
  const fs::path others = from / kChatTemplates;
  if (!fs::is_directory(others, code)) return;
  fs::create_directories(to / kChatTemplates, code);
  if (code) throw_file_error("create", to / kChatTemplates, code.value());
  for (const auto& entry : fs::directory_iterator(others))
    if (entry.path().extension() == ".jinja") copy_one(entry.path(), to / kChatTemplates / entry.path().filename());
}

}  // namespace

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  copy_files(from, to, is_tokenizer_file);
}

void copy_model_files(const fs::path& from, const fs::path& to) {
  const std::set<std::string> code = remote_code(from);
  copy_files(from, to, [&](const std::string& name) { return is_model_file(name) || code.contains(name); });
}

void copy_licence_files(const fs::path& from, const fs::path& to) {
  copy_files(from, to, is_licence_file);
}

}  // namespace fettle
