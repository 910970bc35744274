#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "correct/runtime_programs.h"
#include "gpu_plugin.h"
#include "runtime/vendors/targets.h"
#include "runtime/vendors/topology.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

TEST(Target, NamesMayBeSpelledAsPeopleWriteThem) {
  EXPECT_EQ(target_named("MI300X").title, "AMD Instinct MI300X");
  EXPECT_EQ(&target_named("A100-80GB"), &target_named("a100_80"));
  EXPECT_NE(&target_named("a100-40"), &target_named("a100-80"));
  try {
    target_named("tpu-v9");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("mi300x"), std::string::npos);
  }
}

TEST(Target, MisspeltNamesGetSuggestions) {
  for (const auto& [given, meant] : {std::pair{"mi300y", "did you mean mi300x?"},
                                     {"mi300", "did you mean mi300x?"},
                                     {"A100", "did you mean a100-40 or a100-80?"},
                                     {"rtx-4900", "did you mean rtx4090?"}}) {
    try {
      target_named(given);
      FAIL() << given;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(meant), std::string::npos) << error.what();
    }
  }
}

TEST(Target, IsFoundByTheNameOfTheDevice) {
  for (const auto& [kind, name] : {std::pair{"NVIDIA H100 80GB HBM3", "h100"},
                                   {"NVIDIA A100-SXM4-80GB", "a100-80"},
                                   {"NVIDIA L40S", "l40s"},
                                   {"NVIDIA L40", "l40"},
                                   {"NVIDIA H100 PCIe", "h100-pcie"},
                                   {"NVIDIA GeForce RTX 3090", "rtx3090"},
                                   {"NVIDIA GeForce RTX 4090", "rtx4090"},
                                   {"AMD Instinct MI300X VF", "mi300x"},
                                   {"AMD Instinct MI250", "mi250"},
                                   {"AMD Instinct MI250X/MI250", "mi250"}}) {
    const Target* found = target_of_kind(kind, int64_t{80} << 30);
    ASSERT_NE(found, nullptr) << kind;
    EXPECT_EQ(found->name, name);
  }
}

TEST(Target, IsNotFoundByTheNameOfAVariant) {
  for (const char* kind :
       {"NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5090 D v2",
        "NVIDIA GeForce RTX 5080 SUPER", "NVIDIA GeForce RTX 4090 Laptop GPU", "AMD Instinct MI250X", "NVIDIA H100 NVL",
        "NVIDIA A100-PCIE-40GB", "NVIDIA A100X", "NVIDIA GH200 480GB", "NVIDIA RTX A1000", "NVIDIA L40G"})
    EXPECT_EQ(target_of_kind(kind), nullptr) << kind;
}

// The figures of the makers' data sheets.
TEST(Target, Tf32HasTheRateOfTheDataSheet) {
  for (const auto& [name, tflops] : std::map<std::string, double>{{"a100-80", 156},
                                                                  {"h100", 494.7},
                                                                  {"l40s", 183},
                                                                  {"gb200", 1250},
                                                                  {"rtx3090", 35.6},
                                                                  {"rtx4090", 82.6},
                                                                  {"mi300x", 653.7},
                                                                  {"mi355x", 157.3},
                                                                  {"mi250", 45.3}})
    EXPECT_NEAR(target_named(name).tf32_tflops(), tflops, 0.02 * tflops) << name;
}

TEST(Target, EachIsForAPluginThatCompilesAheadOfTime) {
  std::set<std::string> names;
  for (const Target& target : targets()) {
    EXPECT_TRUE(names.insert(target.name).second) << target.name;
    const Vendor* vendor = vendor_named(target.plugin);
    ASSERT_NE(vendor, nullptr) << target.name;
    EXPECT_EQ(vendor_of_capability(target.chip.capability), vendor) << target.name;
    EXPECT_NE(target.config.find("platform_name: \"" + std::string(vendor->target_platform) + '"'), std::string::npos);
    EXPECT_NE(target.config.find("device_memory_size: " + std::to_string(target.memory_bytes)), std::string::npos);
    // Per second, a device computes more FLOPs than its memory moves bytes, and its memory moves more bytes than its
    // links.
    EXPECT_GT(target.bf16_tflops * 1e3, target.memory_gb_per_s);
    EXPECT_GT(target.memory_gb_per_s, target.link_gb_per_s);
  }
}

// Drivers report up to one eighth less than the nominal memory, because of ECC and of pages that the driver keeps.
TEST(Target, MemoryIsBelowTheNominal) {
  for (const auto& [name, nominal] : std::map<std::string, double>{{"mi300x", 192},
                                                                   {"mi325x", 256},
                                                                   {"mi355x", 288},
                                                                   {"a100-80", 80},
                                                                   {"h200", 141},
                                                                   {"b200", 180},
                                                                   {"b300", 288},
                                                                   {"gb300", 288},
                                                                   {"l4", 24},
                                                                   {"rtx4090", 24},
                                                                   {"rtx5080", 16},
                                                                   {"rtxpro6000", 96}}) {
    const double gib = static_cast<double>(target_named(name).memory_bytes) / (1 << 30);
    EXPECT_LT(gib, nominal) << name;
    EXPECT_GT(gib, 0.875 * nominal) << name;
  }
}

// Returns the first target of a vendor. If `of_another` is true, returns the first target of another vendor.
const Target& target_of(std::string_view vendor, bool of_another = false) {
  return *std::ranges::find_if(targets(), [&](const Target& t) { return (t.plugin == vendor) != of_another; });
}

TEST(Target, EachVendorThatCompilesAheadOfTimeHasOne) {
  for (const std::string_view vendor : vendors_with_targets())
    EXPECT_TRUE(std::ranges::count(targets(), vendor, &Target::plugin) > 0) << vendor;
}

// Compiles the step for eight devices that are not present.
class AheadOfTime : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    require_gpu_plugin(std::string(GetParam()));
    if (!IsSkipped() && !HasFatalFailure()) plugin = Plugin::load(std::string(GetParam()));
  }
  std::shared_ptr<const Plugin> plugin;
};

TEST_P(AheadOfTime, EveryTargetCompilesTheStep) {
  for (const Target& target : targets()) {
    if (target.plugin != GetParam()) continue;
    const Topology topology = Topology::create(plugin, target.config, "1x1x8");
    EXPECT_EQ(topology.device_count(), 8);
    const CompiledProgram program = topology.compile(kStepText, {.num_partitions = 8});
    const MemoryStats stats = program.memory_stats();
    // The arguments are an eighth of w, x and y. The compilers may round sizes up to their alignment.
    EXPECT_GE(stats.argument, (16 * 8 + 32 * 16 + 32 * 8) / 8 * 4) << target.name;
    EXPECT_LT(stats.argument, 2048) << target.name;
    EXPECT_EQ(stats.alias, 16 * 8 / 8 * 4) << target.name;
    EXPECT_GT(stats.temp, 0) << target.name;
    EXPECT_GE(stats.peak, stats.argument) << target.name;
    EXPECT_EQ(program.output_shapes(), (std::vector<Shape>{{DType::kF32, {2, 8}}, {DType::kF32, {}}}));
    EXPECT_FALSE(program.optimized_program().empty());
    EXPECT_FALSE(program.serialize().empty());
  }
}

TEST_P(AheadOfTime, SeveralHostsAndDevicesToSpare) {
  const Target& target = target_of(GetParam());
  const Topology topology = Topology::create(plugin, target.config, "1x2x8");
  EXPECT_EQ(topology.device_count(), 16);
  EXPECT_GT(topology.compile(kStepText, {.num_partitions = 8}).memory_stats().peak, 0);
}

// Runs of several processes set these flags.
TEST_P(AheadOfTime, TheCompilerTakesTheTimeouts) {
  const Topology topology = Topology::create(plugin, target_of(GetParam()).config, "1x1x8");
  EXPECT_EQ(plugin->vendor().timeout_flags.size(), 2u);
  for (const std::string_view flag : plugin->vendor().timeout_flags) {
    auto compile = [&](const std::string& name) {
      return topology.compile(kStepText, {.num_partitions = 8, .env = {{name, std::string("4200s")}}});
    };
    EXPECT_NO_THROW(compile(std::string(flag))) << flag;
    EXPECT_THROW(compile(std::string(flag) + "_"), DeviceError) << "unknown flags are refused";
  }
}

TEST_P(AheadOfTime, WrongTextBringsTheCompilersMessage) {
  const Target& target = target_of(GetParam());
  const Topology topology = Topology::create(plugin, target.config, "1x1x8");
  EXPECT_THROW(topology.compile("module @m { nonsense }", {.num_partitions = 8}), DeviceError);
  EXPECT_THROW(topology.compile(kStepText, {.num_partitions = 8, .env = {{"xla_no_such_flag", true}}}), DeviceError);
}

TEST_P(AheadOfTime, ATargetOfTheOtherVendorIsRefused) {
  const Target& other = target_of(GetParam(), true);
  EXPECT_THROW(Topology::create(plugin, other.config, "1x1x8"), DeviceError);
  EXPECT_THROW(Topology::create(plugin, "gpu_device_info {}", "1x1x8"), DeviceError);
}

TEST_P(AheadOfTime, WithoutTheDeviceThereIsNoClient) {
  if (std::filesystem::exists(plugin->vendor().device_file)) GTEST_SKIP() << "this machine has such a device";
  try {
    Client{plugin};
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("fettle plan"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, AheadOfTime, ::testing::ValuesIn(vendors_with_targets()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fettle
