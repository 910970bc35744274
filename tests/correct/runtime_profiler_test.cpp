// Tests Profiler with the vendors' plugins on a machine without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "gpu_plugin.h"
#include "runtime/profiler.h"

namespace fettle {
namespace {

TEST(Profiler, CpuPluginsCannotRecord) {
  const auto plugin = Plugin::load("cpu");
  EXPECT_FALSE(can_profile(*plugin));
  EXPECT_THROW(Profiler{*plugin}, DeviceError);
}

TEST(Profiler, BothVendorsCanRecord) {
  for (const char* vendor : {"cuda", "rocm"}) {
    require_gpu_plugin(vendor);
    if (IsSkipped() || HasFatalFailure()) return;
    EXPECT_TRUE(can_profile(*Plugin::load(vendor))) << vendor;
  }
}

// NVIDIA's plugin records without a device, too. Then the profile only names the host: an XSpace (field 1: a plane)
// whose plane has a name (field 2). A second recording works like the first one.
TEST(Profiler, GivesAnXSpace) {
  require_gpu_plugin("cuda");
  if (IsSkipped() || HasFatalFailure()) return;
  const auto plugin = Plugin::load("cuda");
  for (int i = 0; i < 2; ++i) {
    Profiler profiler(*plugin);
    const std::string profile = profiler.finish();
    EXPECT_THAT(profile, testing::StartsWith("\x0a"));
    EXPECT_THAT(profile, testing::HasSubstr("\x12\x0e/host:metadata"));
  }
  const Profiler unfinished(*plugin);
}

}  // namespace
}  // namespace fettle
