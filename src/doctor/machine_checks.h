// Defines the checks that need no device: driver, libraries, disks.
#pragma once

#include <filesystem>
#include <string>

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Adds findings about the plugin's file, plugins that are absent (choose_plugin), each missing library, all libraries
// together, and the driver. Returns whether the plugin's file was found.
bool check_plugin(Findings& findings, const std::string& plugin);

// Measures the disk with a file of 64 MB in the folder, or in the nearest parent folder that exists. Writes the file,
// waits until the bytes are on the disk, drops them from the file cache, and reads them again. Figures:
// write_bytes_per_s, read_bytes_per_s, free_bytes. `name` is the key or the variable that sets the folder, for the
// remedy.
Finding check_disk(const std::string& check, const std::filesystem::path& folder, std::string_view name);

}  // namespace fettle
