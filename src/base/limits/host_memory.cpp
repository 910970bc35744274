#include "base/limits/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

#include "base/limits/control_groups.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the bytes left below the limits of this process's control group and its parent groups.
int64_t left_by_groups(const fs::path& root) {
  int64_t left = std::numeric_limits<int64_t>::max();
  for (const auto& [folder, version] : control_groups("memory", root)) {
    const bool new_names = version == 2;
    const auto limit = number_in(folder / (new_names ? "memory.max" : "memory.limit_in_bytes"));
    const auto used = number_in(folder / (new_names ? "memory.current" : "memory.usage_in_bytes"));
    // Pages of files can be dropped, but those of a tmpfs and of shared memory, which count as files, cannot.
    const auto cached = number_after(new_names ? "file" : "total_cache", folder / "memory.stat");
    const auto shared = number_after(new_names ? "shmem" : "total_shmem", folder / "memory.stat");
    const int64_t dropped = std::max<int64_t>(0, cached.value_or(0) - shared.value_or(0));
    if (limit && used) left = std::min(left, *limit - std::max<int64_t>(0, *used - dropped));
  }
  return left;
}

int64_t left_by_rlimit(const fs::path& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(limit.rlim_cur) - number_after("VmData:", root / "proc/self/status").value_or(0) * 1024;
}

}  // namespace

int64_t free_host_memory(const fs::path& root) {
  const int64_t available = number_after("MemAvailable:", root / "proc/meminfo").value_or(0) * 1024;
  return std::max<int64_t>(0, std::min({available, left_by_groups(root), left_by_rlimit(root)}));
}

int64_t resident_bytes() {
  return number_after("VmRSS:", "/proc/self/status").value_or(0) * 1024;
}

}  // namespace fettle
