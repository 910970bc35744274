#include "runtime/vendors/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/own_program.h"
#include "base/limits/cpus.h"
#include "base/limits/host_memory.h"
#include "base/log.h"
#include "runtime/pjrt.h"
#include "runtime/vendors/choice.h"
#include "runtime/vendors/libraries.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Adds the folders into which pip installs wheels. Called if this program is part of a wheel; the program's path is
// then PREFIX/lib/fettle/fettle.
void add_site_packages(std::vector<fs::path>& folders, const fs::path& program) {
  std::vector<fs::path> found;
  std::error_code none;
  const fs::path lib = program.parent_path().parent_path();
  for (const fs::path& each : {lib, fs::path(lib.string() + "64")})
    for (const auto& entry : fs::directory_iterator(each, none))
      if (entry.path().filename().string().starts_with("python3."))
        for (const char* packages : {"site-packages", "dist-packages"})
          if (fs::is_directory(entry.path() / packages, none)) found.push_back(entry.path() / packages);
  std::sort(found.begin(), found.end());
  folders.insert(folders.end(), found.begin(), found.end());
}

std::vector<fs::path> search_folders() {
  std::vector<fs::path> folders;
  const std::string listed = environment("FETTLE_PLUGIN_PATH");
  for (size_t begin = 0; begin < listed.size();) {
    const size_t end = std::min(listed.find(':', begin), listed.size());
    if (end > begin) folders.emplace_back(listed.substr(begin, end - begin));
    begin = end + 1;
  }
  const fs::path program = own_program();
  if (!program.empty()) {
    folders.push_back(program.parent_path() / "plugins");
    folders.push_back(program.parent_path().parent_path() / "plugins");
    if (program.parent_path().filename() == "fettle") add_site_packages(folders, program);
  }
  if (const auto cache = find_cache()) folders.push_back(*cache / "plugins");
  return folders;
}

// Returns the shared objects directly in `folder` whose names contain `word`. The list is sorted, so that the caller's
// choice is always the same.
std::vector<fs::path> shared_objects(const fs::path& folder, std::string_view word) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".so" && name.find(word) != std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the folder of the vendor's JAX plugin that pip has installed ("jax_plugins/xla_cuda13").
// If there are several versions, returns the folder that is last in alphabetical order.
fs::path wheel_folder(const fs::path& packages, const std::string& name) {
  fs::path found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(packages / "jax_plugins", none))
    if (entry.path().filename().string().starts_with("xla_" + name)) found = std::max(found, entry.path());
  return found;
}

fs::path find_by_name(const std::string& name) {
  for (const fs::path& folder : search_folders()) {
    std::vector<fs::path> files = shared_objects(wheel_folder(folder, name), "plugin");
    if (!files.empty()) return files.front();
    // In Python's package folders, files of other modules may contain the vendor's name.
    if (folder.filename().string().ends_with("-packages")) continue;
    files = shared_objects(folder / name, "plugin");
    if (files.empty()) files = shared_objects(folder / name, "");
    if (files.empty()) files = shared_objects(folder, name);
    if (!files.empty()) return files.front();
  }
  return {};
}

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || fs::path(text).extension() == ".so";
}

std::string list_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.string());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Returns whether the file has all bytes that its ELF program headers require. The loader crashes on a shorter file.
bool is_whole(std::ifstream& file, uint64_t size) {
  Elf64_Ehdr header;
  if (!file.seekg(0).read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const auto bytes = static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr));
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  if (!file.read(reinterpret_cast<char*>(segments.data()), bytes)) return false;
  return std::all_of(segments.begin(), segments.end(), [&](const Elf64_Phdr& segment) {
    return segment.p_filesz <= size && segment.p_offset <= size - segment.p_filesz;
  });
}

// Throws DeviceError if the file is missing, cut off or not a shared object. dlopen's own messages do not explain these
// faults.
void check_file(const fs::path& path, const Vendor& vendor) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw DeviceError("plugin {}: no such file; {}", path.string(), vendor.remedy);
  }
  if (fs::is_directory(path, error)) {
    throw DeviceError("plugin {}: this is a folder, wanted a PJRT plugin's .so file", path.string());
  }
  std::ifstream file(path, std::ios::binary);
  char magic[SELFMAG] = {};
  if (!file.read(magic, SELFMAG) || std::string_view(magic, SELFMAG) != ELFMAG) {
    throw DeviceError("plugin {}: not a shared object (it does not begin as an ELF file does); wanted a PJRT plugin",
                      path.string());
  }
  if (!is_whole(file, fs::file_size(path))) {
    throw DeviceError(
        "plugin {}: the file is cut off: it has {} bytes, fewer than its headers state; delete it and fetch it again",
        path.string(), fs::file_size(path));
  }
}

std::string attribute_text(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString: return std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64: return std::to_string(value.int64_value);
    case PJRT_NamedValue_kFloat: return std::to_string(value.float_value);
    case PJRT_NamedValue_kBool: return value.bool_value ? "true" : "false";
    case PJRT_NamedValue_kInt64List:
      return fmt::format("{}", fmt::join(value.int64_array_value, value.int64_array_value + value.value_size, "."));
  }
  return "";
}

std::map<std::string, std::string> read_attributes(const PJRT_Api& api) {
  PJRT_ARGS(PJRT_Plugin_Attributes_Args, args);
  PJRT_CALL(api, PJRT_Plugin_Attributes, args);
  std::map<std::string, std::string> attributes;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    attributes[std::string(value.name, value.name_size)] = attribute_text(value);
  }
  return attributes;
}

// Loads the stand-ins that `make plugins` made for a vendor's missing libraries. Returns false when there are none.
bool load_stand_ins(const fs::path& folder) {
  bool any = false;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    any = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr || any;
  }
  return any;
}

// Sets environment variables that plugins read when they start. Variables that the user has set stay.
void set_environment(const Vendor& vendor) {
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);  // XLA logs a lot at its default level
  if (!vendor.pinned_limit.empty()) {
    constexpr int64_t kGiB = int64_t{1} << 30, kDefault = 64;
    const std::string all = std::to_string(std::max(kDefault, free_host_memory() / kGiB));
    setenv(std::string(vendor.pinned_limit).c_str(), all.c_str(), /*overwrite=*/0);
  }
  const auto is_set = [](std::string_view name) { return !environment(std::string(name).c_str()).empty(); };
  if (!vendor.thread_variables.empty() && std::ranges::none_of(vendor.thread_variables, is_set))
    setenv(std::string(vendor.thread_variables[0]).c_str(), std::to_string(usable_cpus()).c_str(), /*overwrite=*/1);
  std::string flags = environment("XLA_FLAGS");
  const std::string_view name = vendor.xla_flag.substr(0, vendor.xla_flag.find('='));
  if (name.empty() || flags.find(name) != std::string::npos) return;
  flags = fmt::format("{}{}{}", flags, flags.empty() ? "" : " ", vendor.xla_flag);
  setenv("XLA_FLAGS", flags.c_str(), /*overwrite=*/1);
}

struct Opened {
  const PJRT_Api* api;
  bool stands_in;
};

Opened open_plugin(const fs::path& path, const Vendor& vendor) {
  set_environment(vendor);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  bool stands_in = false;
  if (library == nullptr) {
    const std::string reason = dlerror();
    stands_in = load_stand_ins(path.parent_path() / kStandIns);
    if (stands_in) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw DeviceError("plugin {} does not load: {}; {}", path.string(), reason, vendor.remedy);
  }
  const auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    dlclose(library);
    throw DeviceError("plugin {}: a shared object, but not a PJRT plugin (it has no GetPjrtApi); {}", path.string(),
                      vendor.remedy);
  }
  const PJRT_Api* api = get_api();
  if (api == nullptr) throw DeviceError("plugin {}: GetPjrtApi returned null", path.string());
  const int major = api->pjrt_api_version.major_version, minor = api->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR || minor < PJRT_API_MINOR || api->struct_size < PJRT_Api_STRUCT_SIZE) {
    throw DeviceError("plugin {} speaks PJRT API {}.{}, wanted {}.{} or a later {}.x; get a plugin for that version",
                      path.string(), major, minor, PJRT_API_MAJOR, PJRT_API_MINOR, PJRT_API_MAJOR);
  }
  PJRT_ARGS(PJRT_Plugin_Initialize_Args, initialize);
  PJRT_CALL(*api, PJRT_Plugin_Initialize, initialize);
  return {api, stands_in};
}

std::string hash_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DeviceError("plugin {}: the file cannot be read a second time", path.string());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> chunk(1 << 20);
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0) {
    XXH3_64bits_update(state.get(), chunk.data(), static_cast<size_t>(file.gcount()));
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace

fs::path Plugin::find(const std::string& name_or_path) {
  if (is_path(name_or_path)) return fs::exists(name_or_path) ? fs::path(name_or_path) : fs::path();
  if (!name_or_path.empty()) return find_by_name(name_or_path);
  return choose_plugin().plugin;
}

std::shared_ptr<const Plugin> Plugin::load(const std::string& name_or_path) {
  const Vendor* named = vendor_named(name_or_path.empty() ? "cpu" : name_or_path);
  const PluginChoice choice = name_or_path.empty() ? choose_plugin() : PluginChoice{};
  fs::path path = choice.plugin;
  if (!name_or_path.empty()) path = is_path(name_or_path) ? fs::path(name_or_path) : find_by_name(name_or_path);
  if (path.empty()) {
    throw DeviceError("no PJRT plugin {} found in {}{}; {}",
                      name_or_path.empty() ? "at all" : fmt::format("\"{}\"", name_or_path), list_of(search_folders()),
                      find_cache() ? "" : " (there is no cache to look in: neither FETTLE_CACHE nor HOME is set)",
                      (named != nullptr ? *named : unknown_vendor()).remedy);
  }
  const Vendor& vendor = vendor_of_file(path.filename().string());
  check_file(path, vendor);
  require_trust(path, vendor);
  path = fs::canonical(path);

  static std::mutex mutex;
  static std::map<fs::path, std::shared_ptr<const Plugin>> loaded;
  const std::lock_guard lock(mutex);
  if (const auto known = loaded.find(path); known != loaded.end()) return known->second;
  const std::shared_ptr<Plugin> plugin(new Plugin());
  plugin->name_ = vendor.name.empty() ? path.stem().string() : std::string(vendor.name);
  plugin->path_ = path;
  plugin->vendor_ = &vendor;
  const Opened opened = open_plugin(path, vendor);
  plugin->api_ = opened.api;
  plugin->compiles_only_ = opened.stands_in;
  plugin->api_major_ = plugin->api_->pjrt_api_version.major_version;
  plugin->api_minor_ = plugin->api_->pjrt_api_version.minor_version;
  plugin->attributes_ = read_attributes(*plugin->api_);
  loaded[path] = plugin;
  for (const std::string_view skipped : choice.skipped)
    warn(
        "plugin {} cannot run here, because libraries of its vendor are missing (`fettle doctor plugin={}` names "
        "them), so plugin {} is used; the key `plugin` chooses one",
        skipped, skipped, plugin->name_);
  for (const std::string_view absent : choice.absent)
    warn("{}; `fettle doctor` names the remedy, and `plugin: cpu` hides this warning", absence_text(absent));
  return plugin;
}

const std::string& Plugin::content_hash() const {
  std::call_once(hashed_, [&] { content_hash_ = hash_file(path_); });
  return content_hash_;
}

}  // namespace fettle
