// Tests that the GPUs' attention kernels equal the body of their composite in whole programs on the CPU, which
// interprets the kernels' IR: values and gradients, in loops with each rematerialisation policy, with documents,
// windows and grouped heads, on one device and on eight.
#include <gtest/gtest.h>

#include "attention_layers.h"
#include "triton/on_cpu.h"

namespace fettle {
namespace {

using Setting = AttentionSetting;

ChooseKernel interpreted(const std::string& platform, int64_t devices) {
  return choose_among(triton_kernels_on_cpu(cpu_devices(devices).client().plugin(), platform));
}

struct Case {
  std::string platform;
  Setting setting;
};

std::vector<Case> cases() {
  const MeshAxes fsdp{{{"fsdp", 8}}}, tensor{{{"fsdp", 4}, {"tp", 2}}};
  const std::vector<Setting> settings{
      {.name = "grouped"},
      {.name = "several_blocks", .length = 200, .width = 32},
      {.name = "full_blocks", .rows = 1, .length = 256, .width = 16},
      {.name = "window", .length = 150, .window = 7},
      {.name = "windows_of_layers", .length = 140, .window_of_layer = true},
      {.name = "softcap", .softcap = 4},
      {.name = "slopes", .length = 70, .slopes = true},
      {.name = "both_ways", .length = 140, .key_heads = 4, .causal = false},
      {.name = "odd_width", .rows = 1, .length = 80, .width = 80},
      {.name = "wide", .rows = 1, .length = 70, .heads = 2, .key_heads = 1, .width = 136},
      {.name = "eight_devices", .rows = 8, .mesh = fsdp},
      {.name = "heads_over_two", .rows = 4, .slopes = true, .mesh = tensor}};
  std::vector<Case> out;
  for (const char* platform : {"cuda", "rocm"})
    for (const Setting& setting : settings) out.push_back({platform, setting});
  return out;
}

class GpuAttention : public testing::TestWithParam<Case> {};

TEST_P(GpuAttention, EqualsTheBody) {
  const auto& [platform, s] = GetParam();
  const ChooseKernel choose = interpreted(platform, s.mesh.size());
  const Ran body = run_layers(s, DType::kF32, Remat::kNone, {});
  for (const Remat remat : {Remat::kNone, Remat::kFull}) {
    SCOPED_TRACE(static_cast<int>(remat));
    const Ran kernel = run_layers(s, DType::kF32, remat, choose);
    ASSERT_EQ(kernel.kernels.size(), 1u);
    // Each layer calls the forward kernel and the kernels of both gradients once, and with full rematerialisation the
    // forward kernel again.
    EXPECT_EQ(kernel.kernels[0].calls, kLayers * (remat == Remat::kFull ? 4 : 3));
    expect_near(kernel, body, 1e-5);
  }
}

TEST_P(GpuAttention, EqualsTheBodyIn16Bits) {
  const auto& [platform, s] = GetParam();
  const ChooseKernel choose = interpreted(platform, s.mesh.size());
  // bf16 has 8 bits of precision, and f16 has 11. Each layer rounds several times, and the body and the kernel round
  // different values. So the kernel may be only a little farther from the f32 result than the body is.
  constexpr double kFarther = 1.3;
  const Ran exact = run_layers(s, DType::kF32, Remat::kFull, {});
  for (const auto& [dtype, bound] : {std::pair{DType::kBF16, 2e-2}, std::pair{DType::kF16, 3e-3}}) {
    SCOPED_TRACE(stablehlo_name(dtype));
    const Ran kernel = run_layers(s, dtype, Remat::kFull, choose), body = run_layers(s, dtype, Remat::kFull, {});
    expect_near(kernel, body, bound);
    const auto of_kernel = distances(kernel, exact), of_body = distances(body, exact);
    for (const auto& [name, distance] : of_body) EXPECT_LT(of_kernel.at(name), kFarther * distance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, GpuAttention, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.platform + "_" + info.param.setting.name; });

TEST(GpuAttention, LeavesOtherShapesToTheBody) {
  const MeshAxes tensor{{{"fsdp", 4}, {"tp", 2}}};
  const Setting split{.name = "sp", .rows = 4, .mesh = MeshAxes{{{"fsdp", 4}, {"sp", 2}}}};
  EXPECT_TRUE(run_layers(split, DType::kBF16, Remat::kFull, interpreted("rocm", 8)).kernels.empty());
  const Setting one_key_head{.name = "tp", .rows = 4, .key_heads = 1, .mesh = tensor};
  EXPECT_TRUE(run_layers(one_key_head, DType::kBF16, Remat::kFull, interpreted("cuda", 8)).kernels.empty());
}

TEST(GpuAttention, TheSameBitsEachTime) {
  const Setting s{.name = "again", .length = 200, .width = 64};
  const Ran first = run_layers(s, DType::kBF16, Remat::kFull, interpreted("cuda", 1));
  const Ran second = run_layers(s, DType::kBF16, Remat::kFull, interpreted("cuda", 1));
  for (const auto& [name, value] : first.values) EXPECT_EQ(second.values.at(name).elements, value.elements) << name;
}

}  // namespace
}  // namespace fettle
