// Defines check_libraries: whether the libraries that a plugin loads are on this machine.
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
// file cannot be read as a shared object.
std::vector<Library> check_libraries(const std::filesystem::path& plugin, const Vendor& vendor);

// Returns the driver's version, such as "CUDA 13.0, driver 580.65.06"; empty when the driver does not report it.
std::string driver_version(const Vendor& vendor);

}  // namespace fettle
