// Defines checks of the files that a plugin loads: whether its libraries are on this machine, and who may write them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

// The folder beside a plugin with the stand-ins that `make plugins` made for its vendor's libraries.
inline constexpr const char* kStandIns = "stand-ins";

struct Library {
  std::string name;    // "librccl.so.1"
  std::string reason;  // why it does not load; empty when it loads
};

// Tries to load each library that the plugin needs, and returns the results. A plugin needs the libraries to which its
// file is linked (the C and C++ runtimes are left out) and Vendor::opened_libraries. Searches the same folders as the
// loader. Throws DeviceError when the file cannot be read as a shared object, and when require_trust() throws.
std::vector<Library> check_libraries(const std::filesystem::path& plugin, const Vendor& vendor);

// Returns whether all libraries load to which the plugin's file is linked. Stand-ins do not count. Throws DeviceError
// as check_libraries() does.
bool linked_libraries_load(const std::filesystem::path& plugin, const Vendor& vendor);

// Throws DeviceError when the plugin lies in the cache and another user could have changed the plugin or a file that
// was installed with it. The installed files are those in the plugin's folder. For a vendor with
// Vendor::opened_libraries, the files in two folders also count: in the folder `nvidia` beside the plugin's folder
// (`make plugins`), and in the one beside the parent of the plugin's folder (pip). Plugins outside of the cache are
// trusted, because somebody chose them: in FETTLE_PLUGIN_PATH, in the recipe or by installing Fettle.
void require_trust(const std::filesystem::path& plugin, const Vendor& vendor);

// Returns the driver's version, such as "CUDA 13.0, driver 580.65.06". The second part is left out if the kernel does
// not tell it. Returns "" when the driver's library does not load or does not answer. In a container, the kernel may
// have a driver that the container cannot reach. `root` is the folder with this machine's folder sys; only tests give
// another one.
std::string driver_version(const Vendor& vendor, const std::filesystem::path& root = "/");

// Returns what the plugin needs, such as "the plugin needs CUDA 13.0, which driver 580 and later ones have", if the
// driver's version is lower (Driver::least_version); otherwise "".
std::string lack_of_driver(const Vendor& vendor);

}  // namespace fettle
