#include "runtime/vendors/libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/private_files.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// The entries of a shared object's dynamic section.
struct Dynamic {
  std::vector<std::string> needed;
  std::string search;  // folders, separated by ':'; "$ORIGIN" is the object's own folder
};

class ElfFile {
 public:
  explicit ElfFile(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) throw DeviceError("plugin {}: cannot be read; check the file's permissions", path.string());
  }

  Dynamic read_dynamic() {
    const auto header = read<Elf64_Ehdr>(0, 1).front();
    const auto segments = read<Elf64_Phdr>(header.e_phoff, header.e_phnum);
    std::vector<Elf64_Dyn> entries;
    for (const Elf64_Phdr& segment : segments)
      if (segment.p_type == PT_DYNAMIC)
        entries = read<Elf64_Dyn>(segment.p_offset, segment.p_filesz / sizeof(Elf64_Dyn));
    uint64_t names = 0;  // where the table of names begins in the file
    for (const Elf64_Dyn& entry : entries)
      for (const Elf64_Phdr& segment : segments)
        if (entry.d_tag == DT_STRTAB && segment.p_type == PT_LOAD && entry.d_un.d_ptr >= segment.p_vaddr &&
            entry.d_un.d_ptr < segment.p_vaddr + segment.p_filesz)
          names = entry.d_un.d_ptr - segment.p_vaddr + segment.p_offset;
    // The loader searches these folders before those of RUNPATH. It is the same here, because a library that is loaded
    // once is taken for all later objects.
    const std::string first = environment("LD_LIBRARY_PATH");
    Dynamic out;
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NEEDED) out.needed.push_back(text(names + entry.d_un.d_val));
      if (entry.d_tag == DT_RPATH && out.search.empty()) out.search = text(names + entry.d_un.d_val);
      if (entry.d_tag == DT_RUNPATH) out.search = first + ":" + text(names + entry.d_un.d_val);
    }
    return out;
  }

 private:
  template <typename T>
  std::vector<T> read(uint64_t at, uint64_t count) {
    constexpr uint64_t kMost = 1 << 16;
    std::vector<T> out(std::min(count, kMost));
    file_.seekg(static_cast<std::streamoff>(at));
    if (!file_.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(T))))
      throw DeviceError("plugin {}: the file is cut off or not a shared object; fetch it again", path_.string());
    return out;
  }
  std::string text(uint64_t at) {
    std::string out;
    file_.seekg(static_cast<std::streamoff>(at));
    std::getline(file_, out, '\0');
    if (!file_)
      throw DeviceError("plugin {}: the file is cut off or not a shared object; fetch it again", path_.string());
    return out;
  }

  fs::path path_;
  std::ifstream file_;
};

// Returns whether the library is part of the C or C++ runtime, which is already loaded.
bool is_of_compilers(const std::string& name) {
  for (const char* own : {"libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libutil.so", "libstdc++.so",
                          "libgcc_s.so", "ld-linux"})
    if (name.starts_with(own)) return true;
  return false;
}

// Tries to load the library. Returns its handle; null when it does not load, and dlerror() then says why.
void* open_library(const std::string& name, const std::string& search, const fs::path& origin) {
  for (size_t begin = 0; begin < search.size();) {
    const size_t end = std::min(search.find(':', begin), search.size());
    std::string folder = search.substr(begin, end - begin);
    if (const size_t at = folder.find("$ORIGIN"); at != std::string::npos)
      folder.replace(at, std::strlen("$ORIGIN"), origin.string());
    begin = end + 1;
    if (folder.empty()) continue;
    const fs::path file = fs::path(folder) / name;
    std::error_code none;
    if (!fs::exists(file, none)) continue;
    return dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
  return dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
}

// Returns the libraries to which a plugin is linked, except the C and C++ runtimes.
std::vector<std::string> linked_libraries(const Dynamic& dynamic) {
  std::vector<std::string> names;
  for (const std::string& name : dynamic.needed)
    if (!is_of_compilers(name)) names.push_back(name);
  return names;
}

// Returns the folder of the loaded library's file.
fs::path folder_of(void* library) {
  link_map* map = nullptr;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? fs::path(map->l_name).parent_path() : fs::path();
}

}  // namespace

void require_trust(const fs::path& plugin, const Vendor& vendor) {
  const auto cache = find_cache();
  if (!cache || plugin.lexically_relative(*cache).native().starts_with("..")) return;
  const auto check = [](const fs::path& file) {
    if (const std::string reason = distrust(file); !reason.empty())
      throw DeviceError("Fettle does not load {}: {}", file.string(), reason);
  };
  check(plugin);
  std::vector<fs::path> folders{plugin.parent_path()};
  if (!vendor.opened_libraries.empty())
    for (const fs::path& near : {plugin.parent_path(), plugin.parent_path().parent_path()})
      folders.push_back(near.parent_path() / "nvidia");
  std::error_code none;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(folder, none))
      if (!entry.is_directory(none)) check(entry.path());
}

std::vector<Library> check_libraries(const fs::path& plugin, const Vendor& vendor) {
  require_trust(plugin, vendor);
  const fs::path path = fs::canonical(plugin);
  const Dynamic dynamic = ElfFile(path).read_dynamic();
  std::vector<std::string> names = linked_libraries(dynamic);
  names.insert(names.end(), vendor.opened_libraries.begin(), vendor.opened_libraries.end());
  std::vector<Library> out;
  for (const std::string& name : names)
    out.push_back({name, open_library(name, dynamic.search, path.parent_path()) != nullptr ? "" : dlerror()});
  return out;
}

bool linked_libraries_load(const fs::path& plugin, const Vendor& vendor) {
  require_trust(plugin, vendor);
  const fs::path path = fs::canonical(plugin);
  const Dynamic dynamic = ElfFile(path).read_dynamic();
  return std::ranges::all_of(linked_libraries(dynamic), [&](const std::string& name) {
    void* const library = open_library(name, dynamic.search, path.parent_path());
    return library != nullptr && folder_of(library) != path.parent_path() / kStandIns;
  });
}

namespace {

// Returns what the driver's version_call answers; 0 if the driver does not load or does not answer.
int answer_of(const Driver& driver) {
  if (driver.library.empty()) return 0;
  void* const library = dlopen(std::string(driver.library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const std::string call(driver.version_call);
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(library, call.c_str()));
  int version = 0;
  return ask != nullptr && ask(&version) == 0 ? std::max(version, 0) : 0;
}

// Returns a version as its maker writes it: "CUDA 13.0".
std::string version_text(const Vendor& vendor, int version) {
  const int unit = vendor.driver.version_unit;
  return fmt::format("{} {}.{}", vendor.target_platform, version / unit, version % unit / (unit / 100));
}

}  // namespace

std::string driver_version(const Vendor& vendor, const fs::path& root) {
  const int version = answer_of(vendor.driver);
  if (version == 0) return "";
  std::string said = version_text(vendor, version);
  std::ifstream file{root / fs::path(vendor.driver.version_file).relative_path()};
  if (std::string release; std::getline(file, release)) said += fmt::format(", driver {}", release);
  return said;
}

std::string lack_of_driver(const Vendor& vendor) {
  const Driver& driver = vendor.driver;
  const int version = answer_of(driver);
  if (version == 0 || version >= driver.least_version) return "";
  return fmt::format("the plugin needs {}, which driver {} and later ones have",
                     version_text(vendor, driver.least_version), driver.least_release);
}

}  // namespace fettle
