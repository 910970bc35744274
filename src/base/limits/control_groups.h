// Defines control_groups, which finds the kernel's control groups that limit this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

// The folder of a control group's files. Versions 1 and 2 of control groups have different files.
struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;
};

// Returns the groups that limit what `controller` ("memory", "cpu") controls: this process's own group and all groups
// above it, with the mounts of both versions. A folder may not exist: a container often sees only its own group, as the
// root. `root` is the folder that contains proc and sys.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::filesystem::path& root);

// Returns the number at the beginning of the file; nullopt if there is no such file or no number ("max").
std::optional<int64_t> number_in(const std::filesystem::path& file);
// Returns the number after `name` in a file of "name number" lines; nullopt if the file has no such line.
std::optional<int64_t> number_after(const std::string& name, const std::filesystem::path& file);

}  // namespace fettle
