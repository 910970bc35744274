// Tests how the free memory of this machine is read, with fake files of proc and sys.
#include <gtest/gtest.h>

#include "base/host_memory.h"
#include "temp_folder.h"

namespace fettle {
namespace {

constexpr int64_t kMB = 1'000'000;

void write_meminfo(const TempFolder& root, int64_t kilobytes) {
  write_text(root / "proc/meminfo", "MemTotal:       99999999 kB\nMemFree:           1234 kB\nMemAvailable:   " +
                                        std::to_string(kilobytes) + " kB\n");
}

void write_group(const std::filesystem::path& folder, const std::string& most, int64_t used, int64_t cached) {
  write_text(folder / "memory.max", most + "\n");
  write_text(folder / "memory.current", std::to_string(used) + "\n");
  write_text(folder / "memory.stat", "anon 1\nfile " + std::to_string(cached) + "\nkernel 5\n");
}

TEST(HostMemory, IsWhatTheKernelCallsAvailable) {
  TempFolder root;
  write_meminfo(root, 5'000'000);
  EXPECT_EQ(free_host_memory(root.path()), 5'000'000 * int64_t{1024});
}

// The process is in the control group /jobs/one. The outer group /jobs gets a tighter limit. File cache counts as free,
// because the kernel can drop it.
TEST(HostMemory, IsTheSmallestThatAnyGroupAllows) {
  TempFolder root;
  write_meminfo(root, 5'000'000);
  write_text(root / "proc/self/cgroup", "0::/jobs/one\n");
  write_group(root / "sys/fs/cgroup/jobs/one", "max", 100 * kMB, 0);
  EXPECT_EQ(free_host_memory(root.path()), 5'000'000 * int64_t{1024});
  write_group(root / "sys/fs/cgroup/jobs/one", std::to_string(900 * kMB), 500 * kMB, 200 * kMB);
  EXPECT_EQ(free_host_memory(root.path()), 600 * kMB);
  write_group(root / "sys/fs/cgroup/jobs", std::to_string(700 * kMB), 500 * kMB, 0);
  EXPECT_EQ(free_host_memory(root.path()), 200 * kMB);
  write_group(root / "sys/fs/cgroup/jobs", std::to_string(700 * kMB), 900 * kMB, 0);
  EXPECT_EQ(free_host_memory(root.path()), 0);
}

TEST(HostMemory, OfThisMachineIsPlausible) {
  const int64_t bytes = free_host_memory();
  EXPECT_GT(bytes, 10 * kMB);
  EXPECT_LT(bytes, int64_t{1} << 46);
}

}  // namespace
}  // namespace fettle
