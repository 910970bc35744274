// Tests that the CPU's attention kernel equals the body of its composite in whole programs: values and gradients, in
// loops with each rematerialisation policy, with documents, windows and grouped heads, on one device and on eight.
#include <gtest/gtest.h>

#include "attention_layers.h"
#include "environment.h"
#include "kernels/cpu/block_ops.h"
#include "kernels_anywhere.h"

namespace fettle {
namespace {

using Setting = AttentionSetting;

class CpuAttention : public testing::TestWithParam<Setting> {};

TEST_P(CpuAttention, EqualsTheBody) {
  const Setting& s = GetParam();
  const ChooseKernel choose = chooser(s.mesh.size());
  const Ran body = run_layers(s, DType::kF32, Remat::kNone, {});
  EXPECT_TRUE(body.kernels.empty());
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
    SCOPED_TRACE(static_cast<int>(remat));
    const Ran kernel = run_layers(s, DType::kF32, remat, choose);
    ASSERT_EQ(kernel.kernels.size(), 1u);
    // Each layer calls the forward and the backward kernel once, and with full rematerialisation the forward kernel
    // again.
    EXPECT_EQ(kernel.kernels[0].calls, kLayers * (remat == Remat::kFull ? 3 : 2));
    expect_near(kernel, body, 1e-5);
  }
}

TEST_P(CpuAttention, EqualsTheBodyInBf16) {
  const Setting& s = GetParam();
  // bf16 has 8 bits of precision. Each layer rounds several times, and the body and the kernel round different values.
  expect_near(run_layers(s, DType::kBF16, Remat::kFull, chooser(s.mesh.size())),
              run_layers(s, DType::kBF16, Remat::kFull, {}), 2e-2);
}

const MeshAxes kFsdp{{{"fsdp", 8}}}, kTensor{{{"fsdp", 4}, {"tp", 2}}};

INSTANTIATE_TEST_SUITE_P(Settings, CpuAttention,
                         testing::Values(Setting{.name = "grouped"},
                                         Setting{.name = "several_blocks", .length = 150, .width = 64},
                                         Setting{.name = "window", .window = 7},
                                         Setting{.name = "windows_of_layers", .length = 100, .window_of_layer = true},
                                         Setting{.name = "softcap", .softcap = 4},
                                         Setting{.name = "slopes", .slopes = true},
                                         Setting{.name = "both_ways", .key_heads = 4, .causal = false},
                                         Setting{.name = "eight_devices", .rows = 8, .mesh = kFsdp},
                                         Setting{.name = "heads_over_two", .rows = 4, .slopes = true, .mesh = kTensor}),
                         [](const auto& info) { return info.param.name; });

TEST(CpuAttention, EightDevicesEqualOne) {
  Setting s{.name = "one", .rows = 8, .length = 100};
  const Ran one = run_layers(s, DType::kF32, Remat::kFull, chooser(1));
  for (const MeshAxes& mesh : {kFsdp, kTensor}) {
    s.mesh = mesh;
    const Ran several = run_layers(s, DType::kF32, Remat::kFull, chooser(8));
    EXPECT_EQ(several.kernels[0].cost.flops, one.kernels[0].cost.flops);
    expect_near(several, one, 2e-6);
  }
}

// For short rows the kernel is not faster, so the body is used. Without AVX2, the body is used for all rows.
TEST(CpuAttention, LeavesShortRowsToTheBody) {
  chooser(1);
  const ChooseKernel choose = choose_among(select_kernels("cpu", {"auto"}));
  auto calls = [&](int64_t length) {
    const Setting s{.name = "short", .rows = 1, .length = length};
    return run_layers(s, DType::kF32, Remat::kFull, choose).kernels.size();
  };
  EXPECT_EQ(calls(255), 0u);
  EXPECT_EQ(calls(256), cpu::usable_block_ops(DType::kF32).size() > 1 ? 1u : 0u);
  const Environment portable("FETTLE_MAX_CPU_ISA", "portable");
  EXPECT_EQ(calls(256), 0u);
}

// The body is used for shapes and partitions that the kernel does not support.
TEST(CpuAttention, LeavesOtherShapesToTheBody) {
  const Setting split{.name = "sp", .rows = 4, .mesh = MeshAxes{{{"fsdp", 4}, {"sp", 2}}}};
  EXPECT_TRUE(run_layers(split, DType::kF32, Remat::kFull, chooser(8)).kernels.empty());
  const Setting one_key_head{.name = "tp", .rows = 4, .key_heads = 1, .mesh = kTensor};
  EXPECT_TRUE(run_layers(one_key_head, DType::kF32, Remat::kFull, chooser(8)).kernels.empty());
}

TEST(CpuAttention, TheSameBitsEachTime) {
  const Setting s{.name = "again", .length = 200, .width = 64};
  const Ran first = run_layers(s, DType::kBF16, Remat::kFull, chooser(1));
  for (int again = 0; again < 3; ++again) {
    const Ran second = run_layers(s, DType::kBF16, Remat::kFull, chooser(1));
    for (const auto& [name, value] : first.values) EXPECT_EQ(second.values.at(name).elements, value.elements) << name;
  }
}

}  // namespace
}  // namespace fettle
