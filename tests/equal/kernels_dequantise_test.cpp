// Tests that the CPU's kernel that dequantises weights of 4 bits gives the same bits as the body of its composite: for
// single weights and in loops over layers, for both formats and dtypes, with nested absmax and with a short last block.
#include <gtest/gtest.h>

#include "adapters/quantised.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "graph_run.h"
#include "kernel_runs.h"
#include "kernels_anywhere.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;
using Type = Quantisation::Type;

constexpr int64_t kLayers = 3;

struct Setting {
  std::string name;
  Type type = Type::kNf4;
  Dims dims{83, 128};
  bool nested = true;
  DType dtype = DType::kBF16;
  MeshAxes mesh = {};
};

// Returns the stack of a part for all layers, with random codes or numbers.
Tensor stack_of(GraphRun& run, const Param& part, uint32_t seed) {
  Shape shape{*part.dtype, part.dims};
  shape.dims.insert(shape.dims.begin(), kLayers);
  if (shape.dtype != DType::kU8) return run.input(random_value(shape, seed, 0.01, 2));
  return convert(floor(run.input(random_value(shape.with_dtype(DType::kF32), seed, 0, 256))), DType::kU8);
}

// Outputs the weight of the first layer, and those of all layers from a loop.
Ran dequantised(const Setting& s, const ChooseKernel& choose) {
  GraphRun run(s.mesh, choose);
  const QuantisedWeight weight =
      quantised_weight({"w", s.dims, {"", ""}}, {.type = s.type, .nested = s.nested}, ShardingRules(MeshAxes{}));
  Tensors stacks, first;
  for (const Param& part : weight.parts) {
    stacks.push_back(stack_of(run, part, static_cast<uint32_t>(stacks.size() + 1)));
    first.push_back(reshape(slice(stacks.back(), 0, 0, 1), part.dims));
  }
  run.output("first", convert(dequantise(weight, first, s.dtype), DType::kF32));
  const ScanStep all = scan(kLayers, {}, stacks, [&](const Tensor&, const Tensors&, const Tensors& parts) -> ScanStep {
    return {{}, {convert(dequantise(weight, parts, s.dtype), DType::kF32)}};
  });
  run.output("all", all.ys[0]);
  return {run.run(), run.program().kernels()};
}

class CpuDequantise : public testing::TestWithParam<Setting> {};

TEST_P(CpuDequantise, HasTheBitsOfTheBody) {
  const Ran body = dequantised(GetParam(), {}), kernel = dequantised(GetParam(), chooser(1));
  ASSERT_EQ(kernel.kernels.size(), 1u);
  EXPECT_EQ(kernel.kernels[0].kernel, "cpu_dequantise/1");
  EXPECT_EQ(kernel.kernels[0].calls, kLayers + 1);
  expect_near(kernel, body, 1e-12);  // also fails if all values are zero
  expect_same_bits(kernel, body);
}

INSTANTIATE_TEST_SUITE_P(
    Weights, CpuDequantise,
    testing::Values(Setting{.name = "nf4"}, Setting{.name = "nf4_f32", .dtype = DType::kF32},
                    Setting{.name = "fp4_plain", .type = Type::kFp4, .nested = false},
                    Setting{.name = "short_block", .dims = {7, 83}, .nested = false, .dtype = DType::kF32},
                    Setting{.name = "short_block_bf16", .type = Type::kFp4, .dims = {90, 211}},
                    Setting{.name = "many_tasks", .dims = {1024, 320}}),
    [](const auto& info) { return info.param.name; });

TEST(CpuDequantise, LeavesSeveralDevicesToTheBody) {
  const Setting split{.name = "eight", .dims = {64, 128}, .mesh = {{{"fsdp", 8}}}};
  EXPECT_TRUE(dequantised(split, chooser(8)).kernels.empty());
}

}  // namespace
}  // namespace fettle
