#include "config/near_path.h"

#include <fmt/format.h>

#include <vector>

#include "config/nearest.h"

namespace fettle {
namespace fs = std::filesystem;

std::optional<std::string> near_path(const fs::path& path) {
  constexpr size_t kMostRead = 10000;
  const fs::path folder = path.parent_path();
  const std::string name = path.filename().string(), stem = path.stem().string(), ending = path.extension().string();
  if (name.empty()) return std::nullopt;
  // Names that end alike are compared without this ending: rows.jsonl is not near none.jsonl.
  std::vector<std::string> stems, others;
  std::error_code code;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, code), end;
       !code && it != end && stems.size() + others.size() < kMostRead; it.increment(code)) {
    const fs::path entry = it->path().filename();
    if (entry.extension() == ending)
      stems.push_back(entry.stem().string());
    else
      others.push_back(entry.string());
  }
  if (const auto near = nearest(stem, {stems.begin(), stems.end()}))
    return (folder / (std::string(*near) + ending)).string();
  const auto near = nearest(name, {others.begin(), others.end()});
  return near ? std::optional((folder / *near).string()) : std::nullopt;
}

std::string missing_path(const std::string& name) {
  const std::optional<std::string> near = near_path(name);
  if (!near && name.find('/') != std::string::npos) return "";
  return fmt::format("there is no file or folder `{}` here{}", name,
                     near ? fmt::format(" (did you mean `{}`?)", *near) : "");
}

}  // namespace fettle
