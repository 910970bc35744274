// Tests that kernels which read and write slices of stacked weights and saved values in place give the same bits as
// kernels that get copies of the slices, and that the programs then have no copies.
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

// Computes kTrips layers, whose products are stacked, in a loop or one after another. The second product reads what the
// first one wrote. `limit` is the number of layers that the loop visits; 0: all.
constexpr int64_t kTrips = 4;
std::map<std::string, Value> run_stacks(bool loop, bool reverse, int32_t limit) {
  const ChooseKernel choose = choose_among(kernels_anywhere(cpu_devices().client().plugin()));
  GraphRun run({}, choose);
  const ShardingRules rules{{}};
  const Tensor x = run.input(random_value({DType::kF32, {8, kLength, kWide}}, 1));
  const Tensor down = run.input(random_value({DType::kF32, {kTrips, kNarrow, kWide}}, 3, -0.3, 0.3));
  const Tensor up = run.input(random_value({DType::kF32, {kTrips, kWide, kNarrow}}, 4, -0.3, 0.3));
  const ScanBody body = [&](const Tensor&, const Tensors& c, const Tensors& w) -> ScanStep {
    const Tensor low = product(&rules, c[0], w[0]);
    const Tensor wide = product(&rules, low, w[1]);
    const Tensor next = c[0] + wide;  // without rounding that depends on how the compiler fuses it
    return {{next}, {reshape(low, {8 * kLength, kNarrow}), wide, next}};
  };
  Tensors ys;
  if (loop) {
    ScanOptions options{.reverse = reverse};
    if (limit > 0) options.limit = run.input(i32({}, {static_cast<double>(limit)}));
    ys = scan(kTrips, {x}, {down, up}, body, options).ys;
  } else {
    const auto one = [](const Tensor& stack, int64_t at) {
      return reshape(slice(stack, 0, at, at + 1), Dims(stack.dims().begin() + 1, stack.dims().end()));
    };
    std::vector<Tensors> rows(kTrips);
    const int64_t trips = limit > 0 ? limit : kTrips;
    Tensor carry = x;
    for (int64_t i = 0; i < trips; ++i) {
      const int64_t at = reverse ? trips - 1 - i : i;
      const ScanStep step = body({}, {carry}, {one(down, at), one(up, at)});
      carry = step.carries[0];
      rows[static_cast<size_t>(at)] = step.ys;
    }
    for (size_t y = 0; y < 3; ++y) {
      Tensors stack;
      for (const Tensors& row : rows) stack.push_back(expand(row.empty() ? zeros_like(rows[0][y]) : row[y], 0));
      ys.push_back(concatenate(stack, 0));
    }
  }
  for (size_t y = 0; y < ys.size(); ++y) run.output("stack" + std::to_string(y), ys[y]);
  if (loop) {
    EXPECT_THAT(run.program().text(), HasSubstr("written_slices = array<i64: 0>"));
  }
  return run.run();
}

TEST(WrittenSlices, AreTheStacksOfSeparateLayers) {
  for (const bool reverse : {false, true})
    for (const int32_t limit : {0, 3}) {
      const auto stacks = run_stacks(true, reverse, limit), wanted = run_stacks(false, reverse, limit);
      for (const auto& [name, value] : wanted)
        EXPECT_EQ(stacks.at(name).elements, value.elements) << name << ", reverse " << reverse << ", limit " << limit;
    }
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

TEST(SlicedFrame, GivesTheSliceThatIsWritten) {
  int64_t stack_dims[] = {3, 2};
  float stack[6], whole[1];
  int32_t number = 2;
  XLA_FFI_Buffer x{.dtype = XLA_FFI_DataType_F32, .data = stack, .rank = 2, .dims = stack_dims};
  XLA_FFI_Buffer other{.dtype = XLA_FFI_DataType_F32, .data = whole, .rank = 0};
  XLA_FFI_Buffer last{.dtype = XLA_FFI_DataType_S32, .data = &number};
  void* args[] = {&other, &x, &last};
  void* rets[] = {&other, &x};
  int64_t results[] = {1};
  XLA_FFI_Array written{XLA_FFI_DataType_S64, 1, results};
  XLA_FFI_ByteSpan name{"written_slices", 14};
  XLA_FFI_ByteSpan* names[] = {&name};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_ARRAY};
  void* attributes[] = {&written};
  XLA_FFI_CallFrame frame{};
  frame.args = {.size = 3, .args = args};
  frame.rets = {.size = 2, .rets = rets};
  frame.attrs = {.size = 1, .types = types, .names = names, .attrs = attributes};
  cpu::SlicedFrame sliced(frame);
  EXPECT_EQ(sliced.get()->args.size, 1) << "the stack before the call and the index are left out";
  EXPECT_EQ(sliced.get()->attrs.size, 0);
  EXPECT_EQ(sliced.get()->rets.rets[0], &other);
  const auto* slice = static_cast<const XLA_FFI_Buffer*>(sliced.get()->rets.rets[1]);
  EXPECT_EQ(slice->rank, 1);
  EXPECT_EQ(slice->data, stack + 4);
  EXPECT_EQ(rets[1], &x) << "the frame of the caller does not change";
}

}  // namespace
}  // namespace fettle
