#include "runtime/vendors/choice.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "runtime/vendors/libraries.h"
#include "runtime/vendors/plugin.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

fs::path below(const fs::path& root, std::string_view path) {
  return root / fs::path(path).relative_path();
}

bool exists_below(const fs::path& root, std::string_view path) {
  std::error_code none;
  return !path.empty() && fs::exists(below(root, path), none);
}

enum class Listed { kNothing, kOthers, kGpu };

// Returns what the kernel lists: a GPU that this process may use, only GPUs that it may not use (the kernel refuses to
// read their numbers), or neither. Returns kGpu if there is no list.
Listed listed_in(const fs::path& nodes) {
  std::error_code none;
  if (!fs::is_directory(nodes, none)) return Listed::kGpu;
  Listed found = Listed::kNothing;
  for (const auto& node : fs::directory_iterator(nodes, none)) {
    std::ifstream file(node.path() / "gpu_id");
    uint64_t id = 0;
    if (!(file >> id)) found = Listed::kOthers;
    if (id != 0) return Listed::kGpu;
  }
  return found;
}

// Returns false if a library is missing to which the plugin is linked. If the file is damaged or not trusted, returns
// true, because Plugin::load then says so.
bool can_run(const fs::path& plugin, const Vendor& vendor) {
  try {
    return linked_libraries_load(plugin, vendor);
  } catch (const DeviceError&) {
    return true;
  }
}

}  // namespace

bool has_device(const Vendor& vendor, const fs::path& root) {
  if (vendor.device_file.empty()) return true;
  if (exists_below(root, vendor.device_file))
    return vendor.device_nodes.empty() || listed_in(below(root, vendor.device_nodes)) != Listed::kNothing;
  return exists_below(root, vendor.shared_device_file) &&
         dlopen(std::string(vendor.driver.library).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
}

std::string device_state(const Vendor& vendor, const fs::path& root) {
  if (exists_below(root, vendor.device_file)) {
    const Listed listed = vendor.device_nodes.empty() ? Listed::kGpu : listed_in(below(root, vendor.device_nodes));
    return fmt::format("{} exists, {}", vendor.device_file,
                       listed == Listed::kGpu      ? "so there is a device"
                       : listed == Listed::kOthers ? "but this process may not use the GPUs that the kernel lists; a "
                                                     "container also needs `--device /dev/dri`"
                                                   : "but the kernel lists no GPU");
  }
  if (exists_below(root, vendor.shared_device_file))
    return fmt::format("{} exists, so this is WSL 2, where the driver is that of Windows", vendor.shared_device_file);
  return fmt::format("{} is missing: the kernel's driver is not loaded, or this container has no access to the device",
                     vendor.device_file);
}

PluginChoice choose_plugin(const fs::path& root) {
  PluginChoice choice;
  fs::path first;
  for (const Vendor& vendor : vendors()) {
    if (!has_device(vendor, root)) continue;
    const fs::path path = Plugin::find(std::string(vendor.name));
    if (path.empty()) {
      choice.absent.push_back(vendor.name);
      continue;
    }
    if (vendor.device_file.empty() && !first.empty()) break;  // the CPU does not replace a GPU without a word
    if (can_run(path, vendor)) {
      choice.plugin = path;
      if (!vendor.device_file.empty()) choice.absent.clear();
      return choice;
    }
    choice.skipped.push_back(vendor.name);
    if (first.empty()) first = path;
  }
  return {first, {}};
}

std::string absence_text(std::string_view vendor) {
  return fmt::format("this machine has a device for plugin {}, but the plugin is not installed, so plugin cpu is used",
                     vendor);
}

}  // namespace fettle
