// Tests `fettle devices`.
#include <gmock/gmock.h>

#include "run_fettle.h"
#include "runtime/vendors/plugin.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Under another name, the CPU plugin is one that chooses the number of devices itself, as those of GPUs do. It has
// four.
TEST(Devices, AreTheFirstOnesThatTheKeyAsksFor) {
  const TempFolder folder;
  const std::string plugin = folder / "xla_other_plugin.so";
  std::filesystem::create_symlink(std::filesystem::canonical(Plugin::find("cpu")), plugin);
  const auto list = [&](const std::string& count) {
    return run_fettle(folder, {"devices", "plugin=" + plugin, "device_count=" + count});
  };
  const Outcome two = list("2");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("\n1  "), Not(HasSubstr("\n2  "))));
  const Outcome many = list("999");
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.err, HasSubstr("device_count asks for 999 devices, but cpu has "));
}

}  // namespace
}  // namespace fettle
