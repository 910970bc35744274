// Tests how the free memory and the CPUs of this machine are read, with fake files of proc and sys.
#include <gtest/gtest.h>

#include "base/limits/cpus.h"
#include "base/limits/host_memory.h"
#include "temp_folder.h"

namespace fettle {
namespace {

constexpr int64_t kMB = 1'000'000;

void write_meminfo(const TempFolder& root, int64_t kilobytes) {
  write_text(root / "proc/meminfo", "MemTotal:       99999999 kB\nMemFree:           1234 kB\nMemAvailable:   " +
                                        std::to_string(kilobytes) + " kB\n");
}

void write_group(const std::filesystem::path& folder, const std::string& most, int64_t used, int64_t cached,
                 int64_t shared = 0) {
  write_text(folder / "memory.max", most + "\n");
  write_text(folder / "memory.current", std::to_string(used) + "\n");
  write_text(folder / "memory.stat",
             "anon 1\nfile " + std::to_string(cached) + "\nshmem " + std::to_string(shared) + "\nkernel 5\n");
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
  write_group(root / "sys/fs/cgroup/jobs/one", std::to_string(900 * kMB), 500 * kMB, 200 * kMB, 150 * kMB);
  EXPECT_EQ(free_host_memory(root.path()), 450 * kMB) << "the kernel cannot drop the pages of a tmpfs";
  write_group(root / "sys/fs/cgroup/jobs", std::to_string(700 * kMB), 500 * kMB, 0);
  EXPECT_EQ(free_host_memory(root.path()), 200 * kMB);
  write_group(root / "sys/fs/cgroup/jobs", std::to_string(700 * kMB), 900 * kMB, 0);
  EXPECT_EQ(free_host_memory(root.path()), 0);
}

// In version 1, each controller has its own groups. A container sees only its own group, as the root of the mount.
TEST(HostMemory, KnowsTheGroupsOfVersion1) {
  TempFolder root;
  write_meminfo(root, 5'000'000);
  write_text(root / "proc/self/cgroup", "5:cpu,cpuacct:/jobs\n4:memory:/docker/one\n1:name=systemd:/\n0::/\n");
  const std::filesystem::path memory = root / "sys/fs/cgroup/memory";
  write_text(memory / "memory.limit_in_bytes", std::to_string(900 * kMB) + "\n");
  write_text(memory / "memory.usage_in_bytes", std::to_string(500 * kMB) + "\n");
  write_text(memory / "memory.stat", "cache 1\nrss 5\ntotal_cache " + std::to_string(200 * kMB) + "\n");
  EXPECT_EQ(free_host_memory(root.path()), 600 * kMB);
  write_text(memory / "docker/one/memory.limit_in_bytes", std::to_string(400 * kMB) + "\n");
  write_text(memory / "docker/one/memory.usage_in_bytes", std::to_string(100 * kMB) + "\n");
  EXPECT_EQ(free_host_memory(root.path()), 300 * kMB);
  write_text(memory / "docker/one/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  EXPECT_EQ(free_host_memory(root.path()), 600 * kMB);
}

TEST(UsableCpus, AreAtMostTheQuotaOfAnyGroup) {
  TempFolder root;
  const int64_t all = usable_cpus(root.path());
  EXPECT_GE(all, 1);
  write_text(root / "proc/self/cgroup", "0::/jobs/one\n");
  write_text(root / "sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_cpus(root.path()), all);
  write_text(root / "sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
  EXPECT_EQ(usable_cpus(root.path()), std::min<int64_t>(2, all));
  write_text(root / "sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable_cpus(root.path()), 1);
}

TEST(UsableCpus, KnowTheGroupsOfVersion1) {
  TempFolder root;
  write_text(root / "proc/self/cgroup", "4:cpu,cpuacct:/docker/one\n");
  const std::filesystem::path cpu = root / "sys/fs/cgroup/cpu";
  write_text(cpu / "cpu.cfs_quota_us", "-1\n");
  write_text(cpu / "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_cpus(root.path()), usable_cpus("/nowhere"));
  write_text(cpu / "cpu.cfs_quota_us", "70000\n");
  EXPECT_EQ(usable_cpus(root.path()), 1);
}

TEST(HostMemory, OfThisMachineIsPlausible) {
  const int64_t bytes = free_host_memory();
  EXPECT_GT(bytes, 10 * kMB);
  EXPECT_LT(bytes, int64_t{1} << 46);
}

}  // namespace
}  // namespace fettle
