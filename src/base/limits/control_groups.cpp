#include "base/limits/control_groups.h"

#include <fstream>
#include <sstream>

namespace fettle {
namespace {

namespace fs = std::filesystem;

bool lists(const std::string& controllers, const std::string& wanted) {
  std::istringstream in(controllers);
  for (std::string one; std::getline(in, one, ',');)
    if (one == wanted) return true;
  return false;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const fs::path& root) {
  std::vector<ControlGroup> groups;
  std::ifstream in(root / "proc/self/cgroup");
  // A line is "4:cpu,cpuacct:/jobs/one" in version 1, and "0::/jobs/one" in version 2.
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !lists(controllers, controller)) continue;
    const fs::path mount = root / "sys/fs/cgroup" / (controllers.empty() ? "" : controller);
    for (fs::path group = line.substr(second + 2);; group = group.parent_path()) {
      groups.push_back({mount / group, controllers.empty() ? 2 : 1});
      if (group.empty()) break;
    }
  }
  return groups;
}

std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

std::optional<int64_t> number_after(const std::string& name, const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  for (std::string word; in >> word;)
    if (word == name && in >> value) return value;
  return std::nullopt;
}

}  // namespace fettle
