// Defines Plugin: a vendor's PJRT plugin, found and loaded.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

struct PJRT_Api;

namespace fettle {

struct Vendor;

// A plugin stays loaded until the process ends, because vendors' libraries crash after dlclose. All members may be
// called from any thread. Loading the same file again gives the same object.
class Plugin {
 public:
  // Finds and loads a plugin. `name_or_path` is a path to a shared object, a vendor's name ("cpu", "cuda", "rocm",
  // ...), or "" for the best plugin that can run on this machine (choose_plugin), with a warning if another one is
  // skipped. A name is searched for in $FETTLE_PLUGIN_PATH (folders separated by ':'), then in plugins/ and ../plugins/
  // beside the executable, then in Python's package folders if the program is part of a wheel, then in plugins/ of the
  // cache ($FETTLE_CACHE or ~/.cache/fettle). In each folder, the file is <folder>/jax_plugins/xla_<name>*/*plugin*.so
  // or, except in package folders, <folder>/<name>/*.so or <folder>/*<name>*.so. Throws DeviceError with the searched
  // places and the remedy when no plugin is found. Also throws DeviceError when the file is not a shared object or
  // lacks GetPjrtApi, when its API has another major version or a minor version that is too old, when a library is
  // missing, and when another user could have changed a plugin in the cache. Throws UserError like find_cache().
  static std::shared_ptr<const Plugin> load(const std::string& name_or_path = "");
  // Returns the path of the file that load() would load; an empty path when there is none. Loads no plugin. Throws
  // UserError like find_cache().
  static std::filesystem::path find(const std::string& name_or_path);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::string& name() const { return name_; }  // the vendor's name, or the file's name for an unknown vendor
  const std::filesystem::path& path() const { return path_; }
  const Vendor& vendor() const { return *vendor_; }
  int api_major() const { return api_major_; }
  int api_minor() const { return api_minor_; }
  // Returns true when the vendor's libraries are missing and stand-ins replace them. Topology then works, but Client
  // does not.
  bool compiles_only() const { return compiles_only_; }
  // Returns the plugin's attributes, such as "stablehlo_current_version" -> "1.20.0". Lists are joined by '.'.
  const std::map<std::string, std::string>& attributes() const { return attributes_; }
  // Returns the xxhash of the file's content as 16 hex digits. Two builds of one version have different hashes.
  // Computed at first use.
  const std::string& content_hash() const;
  // Returns whether the plugin accepts the flags of Vendor::timeout_flags. Older plugins refuse to compile with these
  // flags. After note_refused_timeouts(), returns false for all clients of the plugin.
  bool knows_timeouts() const { return knows_timeouts_; }
  void note_refused_timeouts() const { knows_timeouts_ = false; }

  const PJRT_Api& api() const { return *api_; }  // only for code in src/runtime

 private:
  Plugin() = default;
  std::string name_;
  std::filesystem::path path_;
  const Vendor* vendor_ = nullptr;
  const PJRT_Api* api_ = nullptr;
  int api_major_ = 0;
  int api_minor_ = 0;
  bool compiles_only_ = false;
  std::map<std::string, std::string> attributes_;
  mutable std::once_flag hashed_;
  mutable std::string content_hash_;
  mutable std::atomic<bool> knows_timeouts_ = true;
};

}  // namespace fettle
