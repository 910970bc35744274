// Tests the number, the bytes and the time of a compiled program's transfers between host and device memory.
#include <gtest/gtest.h>

#include "hlo_builder.h"
#include "plan/compiled/host_copies.h"
#include "plan/compiled/timeline.h"

namespace fettle {
namespace {

using Array = HloBuilder::Array;
constexpr auto kBF16 = HloBuilder::kBF16;
constexpr auto kS32 = HloBuilder::kS32;
const Array kStack{kBF16, {10, 1000}}, kLayer{kBF16, {1, 1000}};  // a layer has 2000 bytes

// Adds arrays in host memory. HloBuilder adds arrays in device memory.
struct Program : HloBuilder {
  Program() : HloBuilder(1) {}
  static void on_host(hlo::Instruction& instruction) {
    instruction.mutable_shape()->mutable_layout()->set_memory_space(5);
  }
  int64_t host_parameter(int64_t number) {
    const int64_t id = parameter(number, kStack);
    on_host(*current->mutable_instructions(current->instructions_size() - 1));
    return id;
  }
  // Adds a computation that fetches a layer. The body of a loop calls it through started().
  int64_t fetch() {
    const int64_t id = computation("fetch");
    const int64_t stack = host_parameter(0);
    add("dynamic-slice", {kLayer}, {stack, parameter(1, {kS32, {}})});
    return id;
  }
  int64_t store() {
    const int64_t id = computation("store");
    const int64_t stack = host_parameter(0);
    on_host(add("dynamic-update-slice", {kStack}, {stack, parameter(1, kLayer), parameter(2, {kS32, {}})}));
    return id;
  }
  void started(int64_t called) {
    hlo::Instruction& start = add("async-start", {kLayer}, {});
    start.add_called_computation_ids(called);
    const int64_t id = start.id();
    add("async-done", {kLayer}, {id});
  }
};

TEST(HostCopies, SlicesOfHostArraysInLoopsAreCounted) {
  Program build;
  const int64_t fetch = build.fetch(), store = build.store();
  const int64_t body = build.computation("body");
  build.started(fetch);
  build.started(store);
  build.computation("main");
  build.loop(body, 10);
  const HloModule module = build.module();
  const HostTraffic traffic = host_traffic_of(module);
  EXPECT_EQ(traffic.to_device, 10 * 2000);
  EXPECT_EQ(traffic.to_host, 10 * 2000);
  EXPECT_EQ(traffic.executions, 20);
  EXPECT_EQ(traffic.asynchronous, 20);
  // Each direction has its own rate and takes 2 us per layer. Here, the copies run one after the other, because the
  // program waits for each.
  const Target target{.bf16_tflops = 1, .f32_tflops = 1, .memory_gb_per_s = 1000, .host_gb_per_s = 1};
  const Timeline line = estimate(module, {}, target, 1, {1, 1, 1, 0, 0});
  EXPECT_DOUBLE_EQ(line.host_bound, 10 * 2e-6);
  EXPECT_NEAR(line.exposed_seconds, 20 * 2e-6, 1e-12);
  EXPECT_NEAR(line.seconds, line.exposed_seconds, 1e-12)
      << "a copy from the host does not count as work of the device's memory";
}

TEST(HostCopies, UpdatesInPlaceAndOnTheDeviceAreNotCounted) {
  Program build;
  build.computation("main");
  const int64_t device = build.parameter(0, kStack), index = build.parameter(1, {kS32, {}});
  const int64_t host = build.host_parameter(2);
  build.add("dynamic-slice", {kLayer}, {device, index});
  Program::on_host(build.add("bitcast", {kStack}, {host}));
  EXPECT_EQ(host_traffic_of(build.module()).bytes(), 0);
  Program::on_host(build.add("copy", {kStack}, {device}));
  const HostTraffic traffic = host_traffic_of(build.module());
  EXPECT_EQ(traffic.to_host, 20000);
  EXPECT_EQ(traffic.to_device, 0);
  EXPECT_EQ(traffic.asynchronous, 0);
}

TEST(HostCopies, WholeArraysGoBothWays) {
  Program build;
  build.computation("main");
  const int64_t device = build.parameter(0, kStack), host = build.host_parameter(1);
  build.add("copy-start", {kStack, kStack, {kS32, {}}}, {host});
  hlo::Instruction& back = build.add("copy-start", {kStack, kStack, {kS32, {}}}, {device});
  back.mutable_shape()->mutable_tuple_shapes(0)->mutable_layout()->set_memory_space(5);
  const HostTraffic traffic = host_traffic_of(build.module());
  EXPECT_EQ(traffic.to_device, 20000);
  EXPECT_EQ(traffic.to_host, 20000);
  EXPECT_EQ(traffic.asynchronous, 2);
}

}  // namespace
}  // namespace fettle
