#include "base/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the number after `name` in a file of "name number" lines; nullopt when the file has no such line.
std::optional<int64_t> field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  int64_t value = 0;
  for (std::string word; in >> word;)
    if (word == name && in >> value) return value;
  return std::nullopt;
}

std::optional<int64_t> number(const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // the file says "max", or there is no such file
}

// Returns the bytes left below the limits of this process's control group and its parent groups (cgroups version 2).
int64_t left_by_groups(const fs::path& root) {
  int64_t left = std::numeric_limits<int64_t>::max();
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::/")) continue;
    for (fs::path group = line.substr(4);; group = group.parent_path()) {
      const fs::path folder = root / "sys/fs/cgroup" / group;
      const std::optional<int64_t> limit = number(folder / "memory.max"), used = number(folder / "memory.current");
      if (limit && used) left = std::min(left, *limit - *used + field(folder / "memory.stat", "file").value_or(0));
      if (group.empty()) break;
    }
  }
  return left;
}

int64_t left_by_rlimit(const fs::path& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(limit.rlim_cur) - field(root / "proc/self/status", "VmData:").value_or(0) * 1024;
}

}  // namespace

int64_t free_host_memory(const fs::path& root) {
  const int64_t available = field(root / "proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  return std::max<int64_t>(0, std::min({available, left_by_groups(root), left_by_rlimit(root)}));
}

int64_t resident_bytes() {
  return field("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

}  // namespace fettle
