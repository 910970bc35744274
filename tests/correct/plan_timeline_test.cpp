#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo_builder.h"
#include "plan/compiled/cost.h"
#include "plan/compiled/timeline.h"

namespace fettle {
namespace {

using ::testing::ElementsAre;
using Array = HloBuilder::Array;
constexpr auto kBF16 = HloBuilder::kBF16;
constexpr auto kF32 = HloBuilder::kF32;

const MeshAxes kMesh{{{"dp", 2}, {"fsdp", 4}}};
const std::vector<std::vector<int64_t>> kFsdp = {{0, 1, 2, 3}, {4, 5, 6, 7}};

// A target with round numbers. A dot of 1000 x 1000 x 1000 takes 2 ms (4 ms in f32). An all-gather from kPart to kWhole
// takes 3 ms.
const Target kTarget{.name = "round",
                     .bf16_tflops = 1,
                     .f32_tflops = 0.5,
                     .memory_gb_per_s = 1000,
                     .link_gb_per_s = 1,
                     .network_gb_per_s = 0.5};
const Assumptions kExact{1, 1, 1, 0, 0};
const Array kPart{kBF16, {500'000}}, kWhole{kBF16, {2'000'000}};
constexpr double kDot = 2e-3, kGather = 3e-3;

Timeline timeline(const HloBuilder& build, const Assumptions& assumptions = kExact, const Target& target = kTarget,
                  int64_t devices_per_host = 8) {
  return estimate(build.module(), kMesh, target, devices_per_host, assumptions);
}

// A program with an empty entry computation, and a computation that contains one all-gather.
struct Gathers : HloBuilder {
  Gathers() {
    gather = computation("gather");
    const int64_t p = parameter(0, kPart);
    collective("all-gather", kWhole, p, kFsdp);
  }
  int64_t start() {
    hlo::Instruction& made = add("async-start", {kPart, kWhole}, {parameter(9, kPart)});
    made.add_called_computation_ids(gather);
    return made.id();
  }
  void done(int64_t started) { add("async-done", {kWhole}, {started}); }
  void dots(int count) {
    for (int i = 0; i < count; ++i) dot(1000, 1000, 1000);
  }
  int64_t gather;
};

TEST(Timeline, ADotTakesItsFlopsAtTheRateOfItsType) {
  HloBuilder build;
  build.computation("main");
  build.dot(1000, 1000, 1000);
  const Timeline bf16 = timeline(build);
  EXPECT_DOUBLE_EQ(bf16.seconds, kDot);
  EXPECT_DOUBLE_EQ(bf16.arithmetic_seconds, kDot);
  EXPECT_EQ(bf16.memory_seconds, 0);
  EXPECT_EQ(bf16.flops, 2e9);
  EXPECT_EQ(bf16.memory_bytes, 6e6);
  EXPECT_DOUBLE_EQ(bf16.memory_bound, 6e-6);
  build.dot(1000, 1000, 1000, kF32);
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 3 * kDot);
  // At half the rate, the dot takes twice the time. The lower bound does not change.
  const Timeline half = timeline(build, {0.5, 1, 1, 0, 0});
  EXPECT_DOUBLE_EQ(half.seconds, 6 * kDot);
  EXPECT_DOUBLE_EQ(half.arithmetic_bound, 3 * kDot);
}

TEST(Timeline, Tf32RaisesTheRateOfF32WhereTheDeviceHasIt) {
  HloBuilder build;
  build.computation("main");
  build.dot(1000, 1000, 1000, kF32);
  Assumptions tf32 = kExact;
  tf32.tf32 = true;
  for (const auto& [capability, seconds] : {std::pair{"8.0", 4e-3},
                                            {"12.0a", 4e-3},
                                            {"gfx942:sramecc+:xnack-", 4e-3},
                                            {"7.5", 8e-3},
                                            {"gfx950:sramecc+:xnack-", 8e-3}}) {
    Target target = kTarget;
    target.f32_tflops = 0.25;
    target.chip.capability = capability;
    EXPECT_DOUBLE_EQ(timeline(build, kExact, target).arithmetic_bound, 8e-3) << capability;
    EXPECT_DOUBLE_EQ(timeline(build, tf32, target).arithmetic_bound, seconds) << capability;
    EXPECT_DOUBLE_EQ(timeline(build, tf32, target).seconds, seconds) << capability;
  }
}

TEST(Timeline, MemoryOrTheLaunchLimitsTheRest) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, {kF32, {1'000'000}});
  build.add("add", {{kF32, {1'000'000}}}, {p, p});
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 12e-6);
  EXPECT_DOUBLE_EQ(timeline(build).memory_seconds, 12e-6);
  EXPECT_DOUBLE_EQ(timeline(build, {1, 0.5, 1, 0, 0}).seconds, 24e-6);
  EXPECT_DOUBLE_EQ(timeline(build, {1, 1, 1, 50e-6, 0}).seconds, 50e-6);
}

TEST(Timeline, ATransferHidesBehindALongerDot) {
  Gathers build;
  build.computation("main");
  const int64_t started = build.start();
  build.dots(2);
  build.done(started);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, 2 * kDot);
  EXPECT_DOUBLE_EQ(line.transfer_seconds, kGather);
  EXPECT_DOUBLE_EQ(line.hidden_seconds, kGather);
  EXPECT_EQ(line.exposed_seconds, 0);
  EXPECT_DOUBLE_EQ(line.link_bound, kGather);
}

TEST(Timeline, TheRestOfALongerTransferIsExposed) {
  Gathers build;
  build.computation("main");
  const int64_t started = build.start();
  build.dots(1);
  build.done(started);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, kGather);
  EXPECT_DOUBLE_EQ(line.hidden_seconds, kDot);
  EXPECT_DOUBLE_EQ(line.exposed_seconds, kGather - kDot);
}

TEST(Timeline, WithoutAStartTheDeviceWaits) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, kPart);
  build.collective("all-gather", kWhole, p, kFsdp);
  build.dot(1000, 1000, 1000);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, kDot + kGather);
  EXPECT_DOUBLE_EQ(line.exposed_seconds, kGather);
  EXPECT_DOUBLE_EQ(timeline(build, {1, 1, 0.5, 0, 1e-3}).exposed_seconds, 2 * kGather + 1e-3);
  ASSERT_EQ(line.largest.size(), 2u);
  EXPECT_EQ(line.largest[0].work, "all-gather over fsdp");
  EXPECT_DOUBLE_EQ(line.largest[0].exposed_seconds, kGather);
  EXPECT_EQ(line.largest[1].op_name, "dot");
  EXPECT_EQ(line.largest[1].work, "arithmetic");
}

TEST(Timeline, TransfersGoOneAfterTheOther) {
  Gathers build;
  build.computation("main");
  const int64_t one = build.start(), two = build.start();
  build.dots(2);  // 2 * 2 ms, in parallel with two transfers of 3 ms
  build.done(two);
  build.done(one);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, 2 * kGather);
  EXPECT_DOUBLE_EQ(line.exposed_seconds, 2 * kGather - 2 * kDot);
}

TEST(Timeline, OlderStartOpcodesAreTransfers) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, kPart);
  hlo::Instruction& start = build.collective("all-reduce-start", kPart, p, kFsdp);
  build.dot(1000, 1000, 1000);
  build.add("all-reduce-done", {kPart}, {start.id()});
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.transfer_seconds, 1.5e-3);
  EXPECT_DOUBLE_EQ(line.seconds, kDot);
}

TEST(Timeline, LoopsRunTheirTripCount) {
  Gathers build;
  const int64_t body = build.computation("body");
  const int64_t started = build.start();
  build.dots(1);
  build.done(started);
  build.computation("main");
  build.loop(body, 10);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, 10 * kGather);
  EXPECT_DOUBLE_EQ(line.arithmetic_seconds, 10 * kDot);
  EXPECT_DOUBLE_EQ(line.exposed_seconds, 10 * (kGather - kDot));
  EXPECT_EQ(line.flops, 2e10);
  build.loop(body, -1);
  EXPECT_EQ(timeline(build).unknown_loops.size(), 1u);
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 11 * kGather);
}

TEST(Timeline, ATransferMayRunThroughALoop) {
  Gathers build;
  const int64_t body = build.computation("body");
  build.dots(1);
  build.computation("main");
  const int64_t started = build.start();
  build.loop(body, 5);
  build.done(started);
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 5 * kDot);
  EXPECT_EQ(timeline(build).exposed_seconds, 0);
}

TEST(Timeline, TheLoopsFirstTransferWaitsForThoseUnderWay) {
  Gathers build;
  const int64_t body = build.computation("body");
  build.done(build.start());
  build.computation("main");
  const int64_t started = build.start();
  build.loop(body, 5);
  build.done(started);
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 6 * kGather);
}

TEST(Timeline, AConditionalCountsItsLongestBranch) {
  HloBuilder build;
  const int64_t small = build.computation("small");
  build.dot(1000, 1000, 500);
  const int64_t large = build.computation("large");
  build.dot(1000, 1000, 1000);
  build.computation("main");
  hlo::Instruction& made = build.add("conditional", {{kF32, {}}});
  made.add_called_computation_ids(large);
  made.add_called_computation_ids(small);
  const Timeline line = timeline(build);
  EXPECT_DOUBLE_EQ(line.seconds, kDot);
  EXPECT_EQ(line.flops, 2e9);
}

TEST(Timeline, DirectLinksServeTheirTwoDevicesOnly) {
  EXPECT_DOUBLE_EQ(share_of_links(7, 2), 1.0 / 7);
  EXPECT_EQ(share_of_links(7, 8), 1);
  EXPECT_EQ(share_of_links(7, 1), 1) << "nothing is sent";
  EXPECT_EQ(share_of_links(0, 2), 1) << "links to a switch";
  Transfer transfer{.group = 8, .on_host = 8, .link_bytes = 7e9};
  Target target = kTarget;
  target.link_gb_per_s = 70;
  EXPECT_DOUBLE_EQ(seconds_of(transfer, target, kExact), 0.1);
  target.link_peers = 7;
  EXPECT_DOUBLE_EQ(seconds_of(transfer, target, kExact), 0.1);
  transfer = {.group = 2, .on_host = 2, .link_bytes = 7e9};
  EXPECT_DOUBLE_EQ(seconds_of(transfer, target, kExact), 0.7);
  // Links and network work in parallel.
  transfer = {.group = 16, .on_host = 8, .link_bytes = 7e9, .network_bytes = 1e9};
  EXPECT_DOUBLE_EQ(seconds_of(transfer, target, kExact), 2);
}

TEST(Timeline, ExpertLoopsCountTheBlocksOfAnEvenSpread) {
  HloBuilder build;
  const int64_t body = build.computation("body");
  build.dot(1000, 1000, 1000);
  build.computation("main");
  hlo::Instruction& loop = build.add("while", {kPart}, {build.parameter(0, kPart)});
  loop.add_called_computation_ids(body);
  loop.mutable_metadata()->set_op_name("grad/layers/experts");
  Assumptions assumptions = kExact;
  EXPECT_EQ(timeline(build, assumptions).unknown_loops.size(), 1u);
  assumptions.expert_blocks = 5;
  const Timeline five = timeline(build, assumptions);
  EXPECT_DOUBLE_EQ(five.seconds, 5 * kDot);
  EXPECT_TRUE(five.unknown_loops.empty());
  EXPECT_THAT(describe(assumptions).back(), testing::HasSubstr("5 blocks"));
}

TEST(Timeline, AssumptionsAreDescribed) {
  EXPECT_THAT(describe({0.6, 0.8, 0.75, 3e-6, 20e-6}),
              ElementsAre("matrix products reach 60% of the data sheet's rate",
                          "memory reaches 80% of its bandwidth; links, network and the link to the host reach 75%",
                          "a kernel takes at least 3 us; a collective takes 20 us plus the time for its bytes"));
}

Cost cost_of_last(const HloBuilder& build) {
  const HloModule module = build.module();
  const HloComputation& entry = module.computations[module.entry];
  return cost_of(module, entry, entry.instructions.back());
}

TEST(Cost, DotsSumOverTheirContractedDims) {
  HloBuilder build;
  build.computation("main");
  const int64_t a = build.parameter(0, {kBF16, {3, 5, 7}}), b = build.parameter(1, {kBF16, {3, 7, 2}});
  hlo::Instruction& made = build.add("dot", {{kF32, {3, 5, 2}}}, {a, b});
  made.mutable_dot()->add_lhs_contracting(2);
  made.mutable_dot()->add_rhs_contracting(1);
  made.mutable_dot()->add_lhs_batch(0);
  made.mutable_dot()->add_rhs_batch(0);
  EXPECT_EQ(cost_of_last(build).flops_bf16, 2 * 3 * 5 * 2 * 7)
      << "the type of the factors counts, not that of the result";
  EXPECT_EQ(cost_of_last(build).flops_f32, 0);
  EXPECT_EQ(cost_of_last(build).memory_bytes, 2 * (3 * 5 * 7 + 3 * 7 * 2) + 4 * 3 * 5 * 2);
}

TEST(Cost, ConvolutionsSumOverTheKernelOfOneOutput) {
  HloBuilder build;
  build.computation("main");
  const int64_t x = build.parameter(0, {kF32, {1, 16, 16, 8}}), k = build.parameter(1, {kF32, {3, 3, 8, 32}});
  build.add("convolution", {{kF32, {1, 14, 14, 32}}}, {x, k}).mutable_convolution()->set_kernel_output_feature(3);
  EXPECT_EQ(cost_of_last(build).flops_f32, 2.0 * 14 * 14 * 32 * 3 * 3 * 8);
}

TEST(Cost, FusionsContainDotsAndReadOnlyTheirSlices) {
  HloBuilder build;
  const int64_t inner = build.computation("fused");
  const int64_t stack = build.parameter(0, {kBF16, {126, 64, 32}}), index = build.parameter(1, {HloBuilder::kS32, {}});
  const int64_t x = build.parameter(2, {kBF16, {16, 64}});
  const int64_t slice = build.add("dynamic-slice", {{kBF16, {1, 64, 32}}}, {stack, index}).id();
  const int64_t flat = build.add("bitcast", {{kBF16, {64, 32}}}, {slice}).id();
  hlo::Instruction& dot = build.add("dot", {{kBF16, {16, 32}}}, {x, flat});
  dot.mutable_dot()->add_lhs_contracting(1);
  build.computation("main");
  const int64_t a = build.parameter(0, {kBF16, {126, 64, 32}}), b = build.parameter(1, {HloBuilder::kS32, {}});
  const int64_t c = build.parameter(2, {kBF16, {16, 64}});
  build.add("fusion", {{kBF16, {16, 32}}}, {a, b, c}).add_called_computation_ids(inner);
  EXPECT_EQ(cost_of_last(build).flops_bf16, 2 * 16 * 32 * 64);
  EXPECT_EQ(cost_of_last(build).memory_bytes, 2 * (64 * 32 + 16 * 64 + 16 * 32) + 4);
}

TEST(Cost, FusionsInPlaceWriteTheirUpdate) {
  HloBuilder build;
  const int64_t inner = build.computation("fused");
  const int64_t stack = build.parameter(0, {kBF16, {126, 64}}), index = build.parameter(1, {HloBuilder::kS32, {}});
  const int64_t x = build.parameter(2, {kF32, {1, 64}});
  const int64_t half = build.add("convert", {{kBF16, {1, 64}}}, {x}).id();
  build.add("dynamic-update-slice", {{kBF16, {126, 64}}}, {stack, half, index});
  build.computation("main");
  const int64_t a = build.parameter(0, {kBF16, {126, 64}}), b = build.parameter(1, {HloBuilder::kS32, {}});
  const int64_t c = build.parameter(2, {kF32, {1, 64}});
  build.add("fusion", {{kBF16, {126, 64}}}, {a, b, c}).add_called_computation_ids(inner);
  EXPECT_EQ(cost_of_last(build).memory_bytes, 4 + 4 * 64 + 2 * 64);
}

TEST(Cost, ProductsOfLibrariesAreCounted) {
  HloBuilder build;
  build.computation("main");
  const int64_t a = build.parameter(0, {kBF16, {16, 64}}), b = build.parameter(1, {kBF16, {64, 32}});
  hlo::Instruction& made = build.add("custom-call", {{kBF16, {16, 32}}, {HloBuilder::kS32, {100}}}, {a, b});
  made.set_custom_call_target("__cublas$lt$matmul");
  made.set_backend_config(R"({"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}})");
  EXPECT_EQ(cost_of_last(build).flops_bf16, 2 * 16 * 32 * 64);
  made.set_custom_call_target("__cudnn$fmhaSoftmax");
  made.set_backend_config(
      R"({"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["2","3","5","7"]}}})");
  EXPECT_EQ(cost_of_last(build).flops_bf16, 2 * 2 * 2 * 3 * 5 * 7 * 64);
  EXPECT_TRUE(cost_of_last(build).counted);
  made.set_custom_call_target("unheard_of");
  EXPECT_FALSE(cost_of_last(build).counted);
  EXPECT_THAT(timeline(build).unknown_kernels, ElementsAre("unheard_of"));
}

TEST(Cost, OurKernelsStateTheirCost) {
  HloBuilder build;
  build.computation("main");
  const int64_t a = build.parameter(0, {kBF16, {16, 64}});
  hlo::Instruction& made = build.add("custom-call", {{kBF16, {16, 64}}}, {a});
  made.set_custom_call_target("fettle_kernel");
  auto& attributes = *made.mutable_frontend_attributes()->mutable_map();
  attributes["fettle_flops"] = "12345";
  EXPECT_EQ(cost_of_last(build).flops_bf16, 12345);
  EXPECT_EQ(cost_of_last(build).memory_bytes, 2 * 2 * 16 * 64)
      << "operands and results, unless the kernel states otherwise";
  attributes["fettle_bytes"] = "77";
  EXPECT_EQ(cost_of_last(build).memory_bytes, 77);
  EXPECT_TRUE(cost_of_last(build).counted);

  // Without a rate the time is not known, and only the memory traffic counts.
  EXPECT_THAT(timeline(build).unknown_kernels, ElementsAre("fettle_kernel"));
  attributes["fettle_kernel"] = "some_attention/1";
  EXPECT_THAT(timeline(build).unknown_kernels, ElementsAre("some_attention/1"));
  attributes["fettle_flops"] = "1000000000000";
  EXPECT_EQ(timeline(build).arithmetic_seconds, 0);
  EXPECT_EQ(timeline(build).seconds, timeline(build).memory_seconds);
  attributes["fettle_percent"] = "30";
  EXPECT_THAT(timeline(build).unknown_kernels, ElementsAre());
  const double seconds = timeline(build).seconds;
  attributes["fettle_percent"] = "15";
  EXPECT_DOUBLE_EQ(timeline(build).seconds, 2 * seconds);
}

}  // namespace
}  // namespace fettle
