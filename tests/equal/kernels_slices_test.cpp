// Tests that kernels which read slices of stacked weights and saved values in place give the same bits as kernels that
// get copies of the slices, and that the programs then have no copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "kernels/cpu/sliced_operands.h"
#include "kernels_anywhere.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSlices = 6, kLayers = 3, kFirst = 2, kLength = 20, kWide = 37, kNarrow = 11;

struct Setting {
  std::string name;
  Remat remat = Remat::kNone;
  bool reverse = false;
  MeshAxes mesh = {};
};

struct Outcome {
  std::map<std::string, Value> values;
  std::string text;
};

// Computes three layers, which begin at slice 2 of six. If `cut_out` is true, the loop also returns its slices, so each
// trip must copy them.
Outcome run_layers(const Setting& s, bool cut_out) {
  const ChooseKernel choose = choose_among(kernels_anywhere(cpu_devices(s.mesh.size()).client().plugin()));
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const Partition rows = rules.partition({"batch", "length", ""}, {8, kLength, kWide}, "x");
  const Tensor x = run.input(random_value({DType::kF32, {8, kLength, kWide}}, 1), rows);
  const Tensor down = run.input(random_value({DType::kF32, {kSlices, kNarrow, kWide}}, 3, -0.3, 0.3));
  const Tensor up = run.input(random_value({DType::kF32, {kSlices, kWide * kNarrow}}, 4, -0.3, 0.3));
  const ScanStep out = scan(kLayers, {x}, {down, up},
                            [&](const Tensor&, const Tensors& carries, const Tensors& w) -> ScanStep {
                              const Tensor low = product(&rules, carries[0], w[0]);
                              const Tensor wide = product(&rules, low, reshape(w[1], {kWide, kNarrow}));
                              return {{carries[0] + tanh(wide)}, cut_out ? w : Tensors{}};
                            },
                            {.reverse = s.reverse, .remat = s.remat, .first = kFirst});
  const Tensors grads = grad(reduce_sum(out.carries[0], {0, 1, 2}), {x});
  run.output("last", out.carries[0]);
  run.output("gradient", grads[0]);
  for (size_t i = 0; i < out.ys.size(); ++i) run.output("slices" + std::to_string(i), out.ys[i]);
  return {run.run(), run.program().text()};
}

class KernelSlices : public testing::TestWithParam<Setting> {};

TEST_P(KernelSlices, GiveTheSameBits) {
  const Outcome in_place = run_layers(GetParam(), false), copied = run_layers(GetParam(), true);
  for (const char* name : {"last", "gradient"})
    EXPECT_EQ(in_place.values.at(name).elements, copied.values.at(name).elements) << name;
}

// The reverse loop reads the weights of both products. They are frozen. The loop has only one other slice, the
// cotangent of tanh; no kernel reads it.
TEST_P(KernelSlices, AreNotCopied) {
  const std::string text = run_layers(GetParam(), false).text;
  EXPECT_THAT(text, HasSubstr("slices = array<i64: 1, 2>"));
  EXPECT_THAT(text, Not(HasSubstr("tensor<1x11x37xf32>"))) << "a slice of the first weight";
  EXPECT_THAT(text, Not(HasSubstr("tensor<1x407xf32>"))) << "a slice of the second weight";
}

INSTANTIATE_TEST_SUITE_P(Loops, KernelSlices,
                         testing::Values(Setting{.name = "plain"}, Setting{.name = "full", .remat = Remat::kFull},
                                         Setting{.name = "reverse", .reverse = true}),
                         [](const auto& info) { return info.param.name; });

// A region of Shardy's manual computation would get all slices of every device. So each trip copies its slice.
TEST(KernelSlices, SeveralDevicesCopy) {
  const Setting eight{.name = "eight", .mesh = {{{"fsdp", 8}}}};
  const Outcome run = run_layers(eight, false);
  EXPECT_THAT(run.text, Not(HasSubstr("slices =")));
  EXPECT_THAT(run.text, HasSubstr("tensor<1x11x37xf32>"));
}

// As in StableHLO's dynamic_slice, the number of a slice is clamped.
TEST(SlicedFrame, TakesTheSliceAndRemovesWhatNamesIt) {
  int64_t stack_dims[] = {3, 2, 2};
  float stack[12];
  for (int i = 0; i < 12; ++i) stack[i] = static_cast<float>(i);
  int32_t number = 0;
  XLA_FFI_Buffer x{.struct_size = sizeof(XLA_FFI_Buffer),
                   .dtype = XLA_FFI_DataType_F32,
                   .data = stack,
                   .rank = 3,
                   .dims = stack_dims};
  XLA_FFI_Buffer last{.struct_size = sizeof(XLA_FFI_Buffer), .dtype = XLA_FFI_DataType_S32, .data = &number};
  void* args[] = {&last, &x, &last};
  int64_t pairs[] = {1, 1};
  XLA_FFI_Array slices{XLA_FFI_DataType_S64, 2, pairs};
  float other = 3;
  XLA_FFI_ByteSpan names[] = {{"scale", 5}, {"slices", 6}};
  XLA_FFI_ByteSpan* name_pointers[] = {&names[0], &names[1]};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_SCALAR, XLA_FFI_AttrType_ARRAY};
  void* attributes[] = {&other, &slices};
  XLA_FFI_CallFrame frame{};
  frame.args = {.size = 3, .args = args};
  frame.attrs = {.size = 2, .types = types, .names = name_pointers, .attrs = attributes};
  for (const auto& [index, first] : std::map<int32_t, float>{{0, 4}, {1, 8}, {5, 8}, {-7, 0}}) {
    number = index;
    cpu::SlicedFrame sliced(frame);
    ASSERT_EQ(sliced.get()->args.size, 2);
    EXPECT_EQ(sliced.get()->attrs.size, 1);
    EXPECT_EQ(sliced.get()->attrs.attrs[0], &other);
    const auto* slice = static_cast<const XLA_FFI_Buffer*>(sliced.get()->args.args[1]);
    EXPECT_EQ(slice->rank, 2);
    EXPECT_EQ(slice->dims[0], 2);
    EXPECT_EQ(*static_cast<const float*>(slice->data), first) << index;
  }
  EXPECT_EQ(x.rank, 3) << "the frame of the caller does not change";
}

}  // namespace
}  // namespace fettle
