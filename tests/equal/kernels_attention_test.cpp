// Tests that the CPU's attention kernel equals the body of its composite in whole programs: values and gradients, in
// loops with each rematerialisation policy, with documents, windows and grouped heads, on one device and on eight.
#include <gtest/gtest.h>

#include "environment.h"
#include "graph/autodiff/grad.h"
#include "graph/composite.h"
#include "graph/ops.h"
#include "graph/prune.h"
#include "graph_run.h"
#include "kernels/cpu/block_ops.h"
#include "kernels_anywhere.h"
#include "models/blocks/attention.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

struct Setting {
  std::string name;
  int64_t rows = 2, length = 40, heads = 4, key_heads = 2, width = 8;
  int64_t window = 0;
  bool window_of_layer = false;  // each layer has another window
  double softcap = 0;
  bool causal = true, slopes = false;
  MeshAxes mesh = {};
  int64_t calls = 3;  // calls of the forward kernel in one run under Remat::kNone: one per layer
};

constexpr int64_t kLayers = 3;

Value segments_of(int64_t rows, int64_t t) {
  Value out{{DType::kI32, {rows, t}}, {}};
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t i = 0; i < t; ++i)
      out.elements.push_back(b % 2 == 1 ? 1 : i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 3 ? 3 : 0);
  return out;
}

ChooseKernel chooser(int64_t devices) {
  return choose_among(kernels_anywhere(cpu_devices(devices).client().plugin()));
}

struct Ran {
  std::map<std::string, Value> values;
  std::vector<KernelUse> kernels;
};

// Runs layers of attention with weights between them. Returns the last layer's output, and all gradients of a weighted
// sum of this output.
Ran run_layers(const Setting& s, DType dtype, Remat remat, const ChooseKernel& choose) {
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const ModelConfig config;
  const Weights none;
  const Partition rows = rules.partition({"batch", "length", "", ""}, {s.rows, s.length, 1, 1}, "x");
  // The products are about 1, so layers do not magnify differences.
  auto any = [&](DType type, Dims dims, uint32_t seed, double size) {
    return random_value({type, std::move(dims)}, seed, -size, size);
  };
  const Dims dims{s.rows, s.length, s.heads, s.width};
  const Tensor x = run.input(any(dtype, dims, 1, 1.7), rows), weights = run.input(any(DType::kF32, dims, 3, 1), rows);
  const Tensor w =
      run.input(any(dtype, {kLayers, s.width, 3 * s.width}, 2, std::sqrt(3.0 / static_cast<double>(s.width))));
  const Tensor segments = run.input(segments_of(s.rows, s.length), {{rows.dims[0], rows.dims[1]}});
  const Tensor widths = run.input(i32({kLayers}, {7, 1 << 30, 20}));
  const ScanStep out =
      scan(kLayers, {x}, {w, widths},
           [&](const Tensor&, const Tensors& carries, const Tensors& xs) -> ScanStep {
             const Tensor parts =
                 dot_general(carries[0], xs[0], {.lhs_contracting = {3}, .rhs_contracting = {0}});  // [B, T, N, 3 H]
             auto part = [&](int64_t i, int64_t heads, const char* axis) {
               return rules.constrain(slice(slice(parts, 3, i * s.width, (i + 1) * s.width), 2, 0, heads),
                                      {"batch", "length", axis, ""});
             };
             Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = 16};
             f.segments = segments;
             AttentionOptions options{.scale = 0.3, .softcap = s.softcap, .causal = s.causal};
             if (s.slopes) options.slopes = alibi_slopes(s.heads);
             if (s.window_of_layer)
               options.window = xs[1];
             else if (s.window > 0)
               options.window = constant(static_cast<double>(s.window), DType::kI32);
             const Tensor mixed = attention(f, part(0, s.heads, "act_heads"), part(1, s.key_heads, "act_kv_heads"),
                                            part(2, s.key_heads, "act_kv_heads"), options, nullptr);
             return {{carries[0] * 0.5 + mixed}, {}};
           },
           {.remat = remat});
  const Tensor last = convert(out.carries[0], DType::kF32);
  const Tensor loss = reduce_sum(last * weights, {0, 1, 2, 3});
  const Tensors grads = grad(loss, {x, w});
  run.output("last", last);
  run.output("x", grads[0]);
  run.output("w", grads[1]);
  Ran ran{run.run(), run.program().kernels()};
  return ran;
}

void expect_near(const Ran& got, const Ran& wanted, double bound) {
  for (const auto& [name, value] : wanted.values) {
    double error = 0, length = 0;
    for (size_t e = 0; e < value.elements.size(); ++e) {
      const double difference = got.values.at(name).elements[e] - value.elements[e];
      error += difference * difference;
      length += value.elements[e] * value.elements[e];
    }
    EXPECT_GT(length, 1e-6) << name << " tells nothing";
    EXPECT_LT(std::sqrt(error / length), bound) << name;
  }
}

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
