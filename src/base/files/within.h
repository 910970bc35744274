// Defines is_within, which tells whether a path leads into a folder.
#pragma once

#include <algorithm>
#include <filesystem>

namespace fettle {

// Returns whether `path` is `folder` or below it. Both are canonical, so that links and `..` do not hide it.
inline bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

}  // namespace fettle
