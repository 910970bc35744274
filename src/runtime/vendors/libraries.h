// Defines check_libraries: whether the libraries that a plugin loads are on this machine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/vendors/vendor.h"

namespace fettle {

struct Library {
  std::string name;    // "librccl.so.1"
  std::string reason;  // why it does not load; empty: it does
};

// Those that the plugin's file is linked to, without the C and C++ compilers' own, and those that it opens by name
// (Vendor::opened_libraries), found as the loader would find them for the plugin. Loads them into this process. Throws
// DeviceError when the file cannot be read as a shared object.
std::vector<Library> check_libraries(const std::filesystem::path& plugin, const Vendor& vendor);

// What the driver says of itself, "CUDA 13.0, driver 580.65.06"; empty when it does not answer.
std::string driver_version(const Vendor& vendor);

}  // namespace fettle
