// Tests that the CPU's kernels of rows (gated MLPs, RMSNorm, cross-entropy) equal the bodies of their
// composites in whole programs: values and gradients, in loops with each rematerialisation policy, on one device and on
// eight.
#include <gtest/gtest.h>

#include "environment.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "kernel_runs.h"
#include "kernels/cpu/block_ops.h"
#include "kernels_anywhere.h"
#include "models/blocks/layers.h"
#include "models/blocks/loss.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

// The rows are so many that a call on one device divides them into several tasks.
constexpr int64_t kLayers = 3, kRows = 8, kLength = 120, kWide = 42;

struct Setting {
  std::string name;
  DType dtype = DType::kF32;
  bool trained = true;  // whether the weights of the norms are trained
  MeshAxes mesh = {};
};

// Runs layers that compute y = rms_norm(x) and x + gated(y, x).
Ran run_layers(const Setting& s, Remat remat, const ChooseKernel& choose) {
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  auto split = [&](const Shape& shape) {
    LogicalAxes axes{"batch", "length"};
    axes.resize(shape.dims.size());
    return rules.fitting(axes, shape.dims);
  };
  auto input = [&](const Shape& shape, uint32_t seed) { return run.input(random_value(shape, seed), split(shape)); };
  const Tensor x = input({s.dtype, {kRows, kLength, kWide}}, 1);
  const Tensor weights = input({DType::kF32, {kRows, kLength, kWide}}, 2);
  const Tensor scales = run.input(random_value({s.dtype, {kLayers, kWide}}, 5, 0.5, 1.5));
  const ScanStep out = scan(kLayers, {x}, {scales},
                            [&](const Tensor&, const Tensors& carries, const Tensors& w) -> ScanStep {
                              const Tensor normal = rms_norm(carries[0], w[0], 1e-5, 0, &rules);
                              return {{carries[0] + gated(rules, "silu", normal, carries[0])}, {}};
                            },
                            {.remat = remat});
  const Tensor last = convert(out.carries[0], DType::kF32);
  Tensors wanted{x};
  if (s.trained) wanted.push_back(scales);
  const Tensors grads = grad(reduce_sum(last * weights, {0, 1, 2}), wanted);
  run.output("last", last);
  for (size_t i = 0; i < grads.size(); ++i) run.output("gradient" + std::to_string(i), grads[i]);
  return {run.run(), run.program().kernels()};
}

const MeshAxes kFsdp{{{"fsdp", 8}}};

int64_t calls_of(const Ran& ran, const std::string& kernel) {
  for (const KernelUse& use : ran.kernels)
    if (use.kernel == kernel) return use.calls;
  return 0;
}

class CpuRows : public testing::TestWithParam<Setting> {};

TEST_P(CpuRows, EqualTheBodies) {
  const Setting& s = GetParam();
  for (const Remat remat : {Remat::kNone, Remat::kDots, Remat::kFull}) {
    SCOPED_TRACE(static_cast<int>(remat));
    const Ran body = run_layers(s, remat, {}), kernel = run_layers(s, remat, chooser(s.mesh.size()));
    EXPECT_TRUE(body.kernels.empty());
    // One call for the forward pass, one for the gradient. Like the body's ops, the norm is computed again unless
    // everything is saved; the gated product itself is not needed again.
    const int64_t again = remat == Remat::kNone ? 0 : 1;
    EXPECT_EQ(calls_of(kernel, "cpu_gated/1"), kLayers * 2);
    EXPECT_EQ(calls_of(kernel, "cpu_rms_norm/1"), kLayers * (2 + again));
    expect_near(kernel, body, s.dtype == DType::kF32 ? 1e-5 : 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, CpuRows,
                         testing::Values(Setting{.name = "f32"}, Setting{.name = "frozen", .trained = false},
                                         Setting{.name = "bf16", .dtype = DType::kBF16},
                                         Setting{.name = "eight_devices", .mesh = kFsdp},
                                         Setting{.name = "eight_devices_bf16", .dtype = DType::kBF16, .mesh = kFsdp}),
                         [](const auto& info) { return info.param.name; });

TEST(CpuRows, EightDevicesEqualOne) {
  const Ran one = run_layers({.name = "one"}, Remat::kFull, chooser(1));
  const Ran eight = run_layers({.name = "eight", .mesh = kFsdp}, Remat::kFull, chooser(8));
  for (size_t i = 0; i < one.kernels.size(); ++i)
    EXPECT_EQ(eight.kernels[i].cost.flops, one.kernels[i].cost.flops) << one.kernels[i].kernel;
  expect_near(eight, one, 2e-6);
}

TEST(CpuRows, TheSameBitsEachTime) {
  const Setting s{.name = "again", .dtype = DType::kBF16};
  const Ran first = run_layers(s, Remat::kFull, chooser(1));
  for (int again = 0; again < 3; ++again) expect_same_bits(run_layers(s, Remat::kFull, chooser(1)), first);
}

// tp splits the hidden values of MLPs. The kernel of gated MLPs runs on each device's part. All devices along tp have
// the same rows of a norm, so the norm's body runs.
TEST(CpuRows, TensorParallelismLeavesNormsToTheBody) {
  const Setting split{.name = "tp", .mesh = {{{"fsdp", 4}, {"tp", 2}}}};
  const Ran body = run_layers(split, Remat::kFull, {}), kernel = run_layers(split, Remat::kFull, chooser(8));
  EXPECT_EQ(calls_of(kernel, "cpu_rms_norm/1"), 0);
  EXPECT_EQ(calls_of(kernel, "cpu_gated/1"), kLayers * 2);
  expect_near(kernel, body, 1e-5);
}

// Computes the cross-entropy of 8 rows of 20 positions. Every fifth label is ignored, and so are all labels of row 3.
Ran run_cross_entropy(const Setting& s, bool weighted, const ChooseKernel& choose) {
  constexpr int64_t kPositions = 20, kVocab = 1501;
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const Partition rows = rules.fitting({"batch", "length"}, {kRows, kPositions});
  Value targets = i32({kRows, kPositions}, {});
  for (int64_t i = 0; i < kRows * kPositions; ++i)
    targets.elements.push_back(i % 5 == 4 || i / kPositions == 3 ? -100 : static_cast<double>(i * 97 % kVocab));
  const Tensor logits = run.input(random_value({DType::kF32, {kRows, kPositions, kVocab}}, 1, -5, 5),
                                  rules.fitting({"batch", "length", "act_vocab"}, {kRows, kPositions, kVocab}));
  const Tensor labels = run.input(targets, rows);
  const Tensor weights =
      weighted ? run.input(random_value({DType::kF32, {kRows, kPositions}}, 2, 0, 2), rows) : Tensor{};
  const CrossEntropy out = cross_entropy(rules, logits, labels, weights, s.dtype);
  run.output("losses", out.losses_BC);
  run.output("slope", out.slope_BCV);
  return {run.run(), run.program().kernels()};
}

TEST(CpuRows, CrossEntropyEqualsTheBody) {
  for (const Setting& s :
       {Setting{.name = "f32"}, Setting{.name = "bf16", .dtype = DType::kBF16},
        Setting{.name = "eight_devices", .mesh = kFsdp}, Setting{.name = "length", .mesh = {{{"fsdp", 4}, {"sp", 2}}}}})
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(testing::Message() << s.name << ' ' << weighted);
      const Ran kernel = run_cross_entropy(s, weighted, chooser(s.mesh.size()));
      EXPECT_EQ(calls_of(kernel, "cpu_cross_entropy/1"), 1);
      expect_near(kernel, run_cross_entropy(s, weighted, {}), s.dtype == DType::kF32 ? 2e-6 : 4e-3);
    }
  // tp splits the vocabulary, so the body runs.
  const Setting split{.name = "tp", .mesh = {{{"fsdp", 4}, {"tp", 2}}}};
  EXPECT_TRUE(run_cross_entropy(split, true, chooser(8)).kernels.empty());
}

TEST(CpuRows, LeavesFewRowsAndSlowCpusToTheBody) {
  chooser(1);
  const ChooseKernel choose = choose_among(select_kernels("cpu", {"auto"}));
  const bool fast = cpu::usable_block_ops(DType::kBF16).size() > 1;
  EXPECT_EQ(calls_of(run_layers({.name = "rows"}, Remat::kFull, choose), "cpu_gated/1") > 0, fast);
  const Environment portable("FETTLE_MAX_CPU_ISA", "portable");
  EXPECT_TRUE(run_layers({.name = "portable"}, Remat::kFull, choose).kernels.empty());
}

}  // namespace
}  // namespace fettle
