#include "base/limits/cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "base/limits/control_groups.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

int64_t cpus_of_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::thread::hardware_concurrency();  // more CPUs than the set can hold
}

// Returns how many CPUs' time the group may use, rounded up; nullopt if it has no limit.
std::optional<int64_t> cpu_quota(const ControlGroup& group) {
  int64_t quota = 0, period = 0;
  if (group.version == 2) {
    std::ifstream in(group.folder / "cpu.max");  // "400000 100000", or "max 100000"
    if (!(in >> quota >> period)) return std::nullopt;
  } else {
    quota = number_in(group.folder / "cpu.cfs_quota_us").value_or(-1);  // -1 means no limit
    period = number_in(group.folder / "cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return (quota + period - 1) / period;
}

}  // namespace

int64_t usable_cpus(const fs::path& root) {
  int64_t cpus = cpus_of_affinity();
  for (const ControlGroup& group : control_groups("cpu", root)) cpus = std::min(cpus, cpu_quota(group).value_or(cpus));
  return std::max<int64_t>(1, cpus);
}

}  // namespace fettle
