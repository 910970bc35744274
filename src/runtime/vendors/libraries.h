// Defines the checks of what a plugin loads: whether its libraries are on this machine, and who may write them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

struct Library {
  std::string name;    // "librccl.so.1"
  std::string reason;  // why it does not load; empty when it loads
};

// Loads the libraries that the plugin's file is linked to, except the C and C++ runtimes, and those that it opens by
// name (Vendor::opened_libraries). Searches for them as the loader would for the plugin. Throws DeviceError when the
// file cannot be read as a shared object, and as require_trust does.
std::vector<Library> check_libraries(const std::filesystem::path& plugin, const Vendor& vendor);

// Throws DeviceError when the plugin lies in the cache and another user could have put code into it, or into a file
// that was installed with it: those of its folder, and of the folder nvidia beside that. Plugins elsewhere were chosen
// by whoever set FETTLE_PLUGIN_PATH, wrote the recipe or installed the program.
void require_trust(const std::filesystem::path& plugin, const Vendor& vendor);

// Returns the driver's version, such as "CUDA 13.0, driver 580.65.06"; empty when the driver does not report it.
std::string driver_version(const Vendor& vendor);

}  // namespace fettle
