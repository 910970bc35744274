// Tests that the compiled program contains the cost that a kernel states. The plan reads it from there.
#include <gtest/gtest.h>

#include "graph/custom_call.h"
#include "graph/ops.h"
#include "graph/slices_in_place.h"
#include "graph_run.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/sliced_operands.h"
#include "kernels_anywhere.h"
#include "models/blocks/attention.h"
#include "plan/compiled/cost.h"
#include "plan/machine.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;

ffi::Error copy(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  std::copy_n(x.typed_data(), x.element_count(), y->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(copy_handler, copy,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

Program copying(const MeshAxes& mesh, int64_t workspace) {
  Program program(mesh);
  BuildScope scope(program.block());
  const Partition rows = mesh.axes.empty() ? Partition{} : Partition{{{"dp"}, {}}};
  const Tensor x = program.input("x", {DType::kF32, {8, 4}}, rows);
  const Tensor y = custom_call({.kernel = "test_copy/1",
                                .target = "test_copy",
                                .results = {x.shape()},
                                .in = {rows},
                                .out = {rows},
                                .cost = {.flops = 8000, .bytes = 1600, .workspace = workspace}},
                               {x + 1.0})[0];
  program.output("y", y * 2.0, rows);
  return program;
}

TEST(PlanKernels, TheCompiledProgramSaysWhatAKernelCosts) {
  for (const int64_t count : {1, 8}) {
    Devices& devices = cpu_devices(count);
    register_ffi_handler<copy_handler>(devices.client().plugin(), "test_copy");
    const MeshAxes mesh = count == 1 ? MeshAxes{} : MeshAxes{{{"dp", 4}, {"tp", 2}}};
    const HloModule module = read_hlo(Machine(devices).compile(copying(mesh, 0), false).optimized);
    int found = 0;
    for (const HloComputation& computation : module.computations)
      for (const HloInstruction& instruction : computation.instructions) {
        if (instruction.custom_call_target != "test_copy") continue;
        ++found;
        const Cost cost = cost_of(module, computation, instruction);
        EXPECT_TRUE(cost.counted);
        EXPECT_EQ(cost.flops_f32, count == 1 ? 8000 : 2000) << "both devices of tp compute the same rows";
        EXPECT_EQ(cost.memory_bytes, count == 1 ? 1600 : 400);
      }
    EXPECT_EQ(found, 1);
  }
}

// A device that is here sizes the workspace itself, so the compiler's count has it already.
// Nothing writes the memory in which the arrays of a loop's results begin.
TEST(PlanKernels, UnwrittenMemoryCostsNothing) {
  Devices& devices = cpu_devices(1);
  cpu::register_unwritten(devices.client().plugin());
  Program program;
  BuildScope scope(program.block());
  const Tensor x = program.input("x", {DType::kF32, {8, 4}});
  const Tensor y = custom_call(
      {.target = kUnwrittenTarget, .attributes = {{"loop", int64_t{0}}}, .results = {x.shape()}}, {x + 1.0})[0];
  program.output("y", y * 0.0);
  const HloModule module = read_hlo(Machine(devices).compile(program, false).optimized);
  int found = 0;
  for (const HloComputation& computation : module.computations)
    for (const HloInstruction& instruction : computation.instructions) {
      if (instruction.custom_call_target != kUnwrittenTarget) continue;
      ++found;
      const Cost cost = cost_of(module, computation, instruction);
      EXPECT_TRUE(cost.counted);
      EXPECT_EQ(cost.memory_bytes, 0);
    }
  EXPECT_EQ(found, 1);
}

TEST(PlanKernels, WorkspaceIsNotCountedTwice) {
  Devices& devices = cpu_devices();
  register_ffi_handler<copy_handler>(devices.client().plugin(), "test_copy");
  const MemoryStats without = Machine(devices).compile(copying({}, 0), false).memory,
                    with = Machine(devices).compile(copying({}, 1 << 20), false).memory;
  EXPECT_EQ(with.temp, without.temp);
  EXPECT_EQ(with.peak, without.peak);
}

// Blocks that the causal mask or the window hides do not count. Of 8 x 8 pairs of blocks, the causal mask leaves
// 1 + 2 + ... + 8 = 36, and the window 8 + 7 = 15. Scratch memory is part of the compiler's temporary memory.
TEST(PlanKernels, AttentionOnTheCpuCountsVisibleBlocksOnly) {
  constexpr int64_t kLength = 512, kHeads = 4, kKeyHeads = 2, kWidth = 16, kBlockPairs = 36, kWindowPairs = 15;
  Devices& devices = cpu_devices();
  const KernelSet kernels = kernels_anywhere(devices.client().plugin());
  for (const int64_t window : {0, 64}) {
    Program program({}, choose_among(kernels));
    BuildScope scope(program.block());
    auto input = [&](const char* name, int64_t heads) {
      return program.input(name, {DType::kF32, {1, kLength, heads, kWidth}});
    };
    const ModelConfig config;
    const Weights none;
    const ShardingRules rules{MeshAxes{}};
    Forward f{.config = config, .weights = none, .sharding = rules};
    f.segments = program.input("segments", {DType::kI32, {1, kLength}});
    AttentionOptions options{.scale = 0.25};
    if (window > 0) options.window = constant(static_cast<double>(window), DType::kI32);
    const Tensor q = input("q", kHeads), k = input("k", kKeyHeads), v = input("v", kKeyHeads);
    program.output("o", attention(f, q, k, v, options, nullptr));
    const CompiledStep step = Machine(devices).compile(program, false);
    const HloModule module = read_hlo(step.optimized);
    int found = 0;
    for (const HloComputation& computation : module.computations)
      for (const HloInstruction& instruction : computation.instructions) {
        if (!instruction.custom_call_target.starts_with("fettle_cpu_attention")) continue;
        ++found;
        const Cost cost = cost_of(module, computation, instruction);
        EXPECT_TRUE(cost.counted);
        // For each pair of a query block and a key block, there are two products of 64 queries, 64 keys and the head
        // width.
        const int64_t pairs = window > 0 ? kWindowPairs : kBlockPairs;
        EXPECT_EQ(cost.flops_f32, kHeads * pairs * 2 * 2 * 64 * 64 * kWidth);
        EXPECT_EQ(cost.memory_bytes, 4 * kLength * kWidth * (2 * kHeads + 2 * kKeyHeads));
      }
    EXPECT_EQ(found, 1);
    const int64_t scratch = cpu::attention_workspace(
        {.rows = 1, .length = kLength, .keys = kLength, .heads = kHeads, .key_heads = kKeyHeads, .width = kWidth});
    EXPECT_GE(step.memory.temp, scratch);
    EXPECT_LT(step.memory.temp, 2 * scratch);
  }
}

}  // namespace
}  // namespace fettle
