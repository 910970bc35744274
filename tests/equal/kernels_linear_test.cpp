// Tests that the CPU's kernel for matrix products equals the body of its composite in whole programs: values and
// gradients, in loops with each rematerialisation policy, with frozen and trained weights, on one device and on eight.
#include <gtest/gtest.h>

#include "environment.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "kernel_runs.h"
#include "kernels/cpu/block_ops.h"
#include "kernels_anywhere.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int64_t kLayers = 3, kLength = 20, kWide = 37, kNarrow = 11;

struct Setting {
  std::string name;
  DType dtype = DType::kF32, weight = DType::kF32;
  bool trained = true;
  MeshAxes mesh = {};
};

// Runs layers that compute x + tanh(tanh(x down^T) up). The second product uses `transposed`, so both weights are
// [narrow, wide].
Ran run_layers(const Setting& s, Remat remat, const ChooseKernel& choose) {
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const Partition rows = rules.partition({"batch", "length", ""}, {8, kLength, kWide}, "x");
  const Tensor x = run.input(random_value({s.dtype, {8, kLength, kWide}}, 1), rows);
  const Tensor weights = run.input(random_value({DType::kF32, {8, kLength, kWide}}, 2), rows);
  const Tensor down = run.input(random_value({s.weight, {kLayers, kNarrow, kWide}}, 3, -0.3, 0.3));
  const Tensor up = run.input(random_value({s.weight, {kLayers, kNarrow, kWide}}, 4, -0.3, 0.3));
  const ScanStep out = scan(kLayers, {x}, {down, up},
                            [&](const Tensor&, const Tensors& carries, const Tensors& w) -> ScanStep {
                              const Tensor low = product(&rules, carries[0], w[0]);
                              return {{carries[0] + tanh(product(&rules, tanh(low), w[1], {.transposed = true}))}, {}};
                            },
                            {.remat = remat});
  const Tensor last = convert(out.carries[0], DType::kF32);
  Tensors wanted{x};
  if (s.trained) wanted.insert(wanted.end(), {down, up});
  const Tensors grads = grad(reduce_sum(last * weights, {0, 1, 2}), wanted);
  run.output("last", last);
  for (size_t i = 0; i < grads.size(); ++i) run.output("gradient" + std::to_string(i), grads[i]);
  return {run.run(), run.program().kernels()};
}

const MeshAxes kFsdp{{{"fsdp", 8}}};

class CpuLinear : public testing::TestWithParam<Setting> {};

TEST_P(CpuLinear, EqualsTheBody) {
  const Setting& s = GetParam();
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
    SCOPED_TRACE(static_cast<int>(remat));
    const Ran body = run_layers(s, remat, {}), kernel = run_layers(s, remat, chooser(s.mesh.size()));
    EXPECT_TRUE(body.kernels.empty());
    ASSERT_EQ(kernel.kernels.size(), 1u);
    // Each layer computes two products in the forward pass, two for the gradient of x, one for each trained weight, and
    // the two forward products again under full rematerialisation.
    EXPECT_EQ(kernel.kernels[0].calls, kLayers * (4 + (s.trained ? 2 : 0) + (remat == Remat::kFull ? 2 : 0)));
    expect_near(kernel, body, s.dtype == DType::kF32 ? 1e-5 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, CpuLinear,
                         testing::Values(Setting{.name = "f32"}, Setting{.name = "frozen", .trained = false},
                                         Setting{.name = "bf16_weights", .weight = DType::kBF16},
                                         Setting{.name = "bf16", .dtype = DType::kBF16, .weight = DType::kBF16},
                                         Setting{.name = "bf16_of_f32_weights", .dtype = DType::kBF16},
                                         Setting{.name = "eight_devices", .mesh = kFsdp},
                                         Setting{.name = "eight_devices_bf16", .dtype = DType::kBF16, .mesh = kFsdp}),
                         [](const auto& info) { return info.param.name; });

TEST(CpuLinear, EightDevicesEqualOne) {
  const Ran one = run_layers({.name = "one"}, Remat::kFull, chooser(1));
  const Ran eight = run_layers({.name = "eight", .mesh = kFsdp}, Remat::kFull, chooser(8));
  EXPECT_EQ(eight.kernels[0].cost.flops, one.kernels[0].cost.flops);
  expect_near(eight, one, 2e-6);
}

TEST(CpuLinear, TheSameBitsEachTime) {
  const Setting s{.name = "again", .dtype = DType::kBF16};
  const Ran first = run_layers(s, Remat::kFull, chooser(1));
  for (int again = 0; again < 3; ++again) expect_same_bits(run_layers(s, Remat::kFull, chooser(1)), first);
}

// The body is used under tensor parallelism, which splits the weights, and on CPUs without AVX2. On other CPUs, the 160
// rows are enough for the kernel.
TEST(CpuLinear, LeavesOthersToTheBody) {
  const Setting split{.name = "tp", .mesh = {{{"fsdp", 4}, {"tp", 2}}}};
  EXPECT_TRUE(run_layers(split, Remat::kFull, chooser(8)).kernels.empty());
  chooser(1);
  const ChooseKernel choose = choose_among(select_kernels("cpu", {"auto"}));
  const size_t calls = cpu::usable_block_ops(DType::kF32).size() > 1 ? 1 : 0;
  EXPECT_EQ(run_layers({.name = "rows"}, Remat::kFull, choose).kernels.size(), calls);
  const Environment portable("FETTLE_MAX_CPU_ISA", "portable");
  EXPECT_TRUE(run_layers({.name = "portable"}, Remat::kFull, choose).kernels.empty());
}

// One position of each of up to 4 rows, as for the next token of a reply, is multiplied by the kernel. A product with
// a weight that is stored as [in, out] is not.
TEST(CpuLinear, ComputesTheNextTokenOfAFewRows) {
  chooser(1);
  const ChooseKernel choose = choose_among(select_kernels("cpu", {"auto"}));
  const auto next = [&](int64_t rows, bool transposed, const ChooseKernel& kernels) -> Ran {
    GraphRun run(MeshAxes{}, kernels);
    const Tensor x = run.input(random_value({DType::kF32, {rows, 1, kWide}}, 1));
    const Tensor w =
        run.input(random_value({DType::kF32, transposed ? Dims{kWide, kNarrow} : Dims{kNarrow, kWide}}, 2));
    const ShardingRules rules{MeshAxes{}};
    run.output("y", product(&rules, x, w, {.transposed = transposed}));
    return {run.run(), run.program().kernels()};
  };
  const size_t calls = cpu::usable_block_ops(DType::kF32).size() > 1 ? 1 : 0;
  for (const int64_t rows : {1, 3, 4}) {
    const Ran kernel = next(rows, false, choose);
    EXPECT_EQ(kernel.kernels.size(), calls) << rows;
    expect_near(kernel, next(rows, false, {}), 1e-6);
  }
  EXPECT_TRUE(next(5, false, choose).kernels.empty());
  EXPECT_TRUE(next(3, true, choose).kernels.empty());
}

// Runs layers that compute x + tanh(lora(x)).
Ran run_lora_layers(const Setting& s, Remat remat, const ChooseKernel& choose) {
  constexpr int64_t kRank = 4;
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const Partition rows = rules.partition({"batch", "length", ""}, {8, kLength, kWide}, "x");
  const Tensor x = run.input(random_value({s.dtype, {8, kLength, kWide}}, 1), rows);
  const Tensor weights = run.input(random_value({DType::kF32, {8, kLength, kWide}}, 2), rows);
  const Tensor base = run.input(random_value({s.weight, {kLayers, kWide, kWide}}, 3, -0.3, 0.3));
  const Tensor a = run.input(random_value({DType::kF32, {kLayers, kRank, kWide}}, 4, -0.3, 0.3));
  const Tensor b = run.input(random_value({DType::kF32, {kLayers, kWide, kRank}}, 5, -0.3, 0.3));
  const ScanStep out = scan(kLayers, {x}, {base, a, b},
                            [&](const Tensor&, const Tensors& carries, const Tensors& w) -> ScanStep {
                              return {{carries[0] + tanh(lora_product(rules, carries[0], w[0], {w[1], w[2], 2}))}, {}};
                            },
                            {.remat = remat});
  const Tensor last = convert(out.carries[0], DType::kF32);
  Tensors wanted{x, a, b};
  if (s.trained) wanted.push_back(base);
  const Tensors grads = grad(reduce_sum(last * weights, {0, 1, 2}), wanted);
  run.output("last", last);
  for (size_t i = 0; i < grads.size(); ++i) run.output("gradient" + std::to_string(i), grads[i]);
  return {run.run(), run.program().kernels()};
}

class CpuLora : public testing::TestWithParam<Setting> {};

TEST_P(CpuLora, EqualsTheBody) {
  const Setting& s = GetParam();
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
    SCOPED_TRACE(static_cast<int>(remat));
    const Ran body = run_lora_layers(s, remat, {}), kernel = run_lora_layers(s, remat, chooser(s.mesh.size()));
    ASSERT_EQ(kernel.kernels.size(), 1u);
    EXPECT_EQ(kernel.kernels[0].kernel, "cpu_lora/6");
    EXPECT_EQ(kernel.kernels[0].calls, kLayers * (remat == Remat::kFull ? 3 : 2));
    expect_near(kernel, body, s.dtype == DType::kF32 ? 1e-5 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, CpuLora,
                         testing::Values(Setting{.name = "f32"}, Setting{.name = "frozen", .trained = false},
                                         Setting{.name = "bf16_weights", .weight = DType::kBF16, .trained = false},
                                         Setting{.name = "bf16", .dtype = DType::kBF16, .weight = DType::kBF16},
                                         Setting{.name = "eight_devices", .mesh = kFsdp},
                                         Setting{.name = "eight_devices_bf16", .dtype = DType::kBF16, .mesh = kFsdp}),
                         [](const auto& info) { return info.param.name; });

TEST(CpuLora, EightDevicesEqualOne) {
  const Ran one = run_lora_layers({.name = "one"}, Remat::kFull, chooser(1));
  const Ran eight = run_lora_layers({.name = "eight", .mesh = kFsdp}, Remat::kFull, chooser(8));
  EXPECT_EQ(eight.kernels[0].cost.flops, one.kernels[0].cost.flops);
  expect_near(eight, one, 2e-6);
}

// Under tensor parallelism, the bodies of the base's product and of the adapter's products run.
TEST(CpuLora, LeavesSplitWeightsToTheBody) {
  const Setting split{.name = "tp", .mesh = {{{"fsdp", 4}, {"tp", 2}}}};
  EXPECT_TRUE(run_lora_layers(split, Remat::kFull, chooser(8)).kernels.empty());
}

}  // namespace
}  // namespace fettle
