#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/environment.h"
#include "base/limits/cpus.h"
#include "config/keys.h"
#include "correct/runtime_programs.h"
#include "runtime/client.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

TEST(Plugin, TheCpuPluginDescribesItself) {
  const auto plugin = Plugin::load("cpu");
  EXPECT_EQ(plugin->name(), "cpu");
  EXPECT_EQ(plugin->api_major(), 0);
  EXPECT_GE(plugin->api_minor(), 81);
  EXPECT_TRUE(plugin->attributes().contains("stablehlo_current_version"));
  EXPECT_EQ(plugin->content_hash().size(), 16u);
  EXPECT_EQ(Plugin::load(plugin->path().string()), plugin) << "the same file is loaded once";
  EXPECT_EQ(Plugin::find("cpu").filename(), plugin->path().filename());
}

// Without this flag, the plugin ends the process if a device is late for a collective. Devices are often late, because
// they share the cores.
// A container's limit of CPU time is not known to the plugin.
TEST(Plugin, TheCpuPluginHasAThreadForEachUsableCpu) {
  Plugin::load("cpu");
  EXPECT_EQ(environment("PJRT_NPROC"), std::to_string(usable_cpus()));
}

TEST(Plugin, CollectivesOnTheCpuWaitForSlowDevices) {
  Plugin::load("cpu");
  const char* flags = std::getenv("XLA_FLAGS");
  ASSERT_NE(flags, nullptr);
  EXPECT_NE(std::string(flags).find("--xla_cpu_collective_call_terminate_timeout_seconds=86400"), std::string::npos);
}

TEST(Client, MakesTheDevicesAskedFor) {
  const Client& client = eight_devices();
  EXPECT_EQ(client.platform_name(), "cpu");
  EXPECT_FALSE(client.platform_version().empty());
  ASSERT_EQ(client.devices().size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(client.devices()[i].ordinal, i);
    EXPECT_EQ(client.devices()[i].id, i);
    EXPECT_GT(client.devices()[i].memory_bytes, int64_t{1} << 20);
    EXPECT_EQ(client.devices()[i].process_index, client.process_index());
  }
  EXPECT_EQ(Client(Plugin::load("cpu")).devices().size(), 1u);
}

TEST(Vendor, EachRowIsComplete) {
  std::set<std::string_view> names;
  const std::string_view help = find_key("plugin")->help;
  for (const Vendor& row : vendors()) {
    const std::string name(row.name);
    EXPECT_TRUE(names.insert(row.name).second) << name;
    EXPECT_EQ(&vendor_of_file("pjrt_" + std::string(row.file_word) + "_plugin.so"), &row)
        << name << ": another row's file_word is in this file name";
    EXPECT_NE(row.peak_bytes, nullptr) << name;
    EXPECT_FALSE(row.remedy.empty()) << name;
    EXPECT_EQ(row.remedy.find("; "), std::string_view::npos) << name << ": `fettle doctor` shows only the last part";
    EXPECT_NE(help.find(name), std::string_view::npos)
        << name << ": src/config/key_rows/hardware_keys.cpp, help of `plugin`";
    EXPECT_NE(unknown_vendor().remedy.find(name), std::string_view::npos);
    EXPECT_TRUE(!row.has_memory_options || !row.driver.library.empty()) << name << ": its memory is not known";
  }
  EXPECT_TRUE(std::ranges::is_partitioned(vendors(), [](const Vendor& row) { return !row.device_file.empty(); }))
      << "a vendor whose device is always there hides the rows below it";
}

TEST(Vendor, PeakCountsWhatEachPluginLeavesOut) {
  MemoryStats stats = {.argument = 100, .output = 50, .alias = 30, .temp = 7, .reported_peak = 140};
  EXPECT_EQ(vendor_named("cpu")->peak_bytes(stats), 127);
  EXPECT_EQ(vendor_named("cuda")->peak_bytes(stats), 140);
  stats.host_argument = 10;  // if there are arguments in host memory, the reported peak counts host and device memory
  EXPECT_EQ(vendor_named("cuda")->peak_bytes(stats), 127);
  EXPECT_EQ(vendor_of_file("xla_rocm_plugin.so").name, "rocm");
  EXPECT_EQ(vendor_named("no such"), nullptr);
}

}  // namespace
}  // namespace fettle
