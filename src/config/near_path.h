// Defines what messages say about a file or folder that is not there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fettle {

// Returns the path of a file or folder whose name is near `path`'s (nearest.h), in the same folder. Returns nullopt
// when there is none.
std::optional<std::string> near_path(const std::filesystem::path& path);

// Returns "there is no file or folder `bse` here (did you mean `base`?)" for a name that may also be a repository on a
// hub. Returns "" when the name has a slash and there is no near path, because it then most likely means a repository.
std::string missing_path(const std::string& name);

}  // namespace fettle
