#include <gtest/gtest.h>

#include "hlo_builder.h"
#include "plan/compiled/traffic.h"

namespace fettle {
namespace {

constexpr auto kBF16 = HloBuilder::kBF16;
const MeshAxes kMesh{{{"dp", 2}, {"fsdp", 4}}};
const std::vector<std::vector<int64_t>> kFsdp = {{0, 1, 2, 3}, {4, 5, 6, 7}};
const std::vector<std::vector<int64_t>> kDp = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
const std::vector<std::vector<int64_t>> kAll = {{0, 1, 2, 3, 4, 5, 6, 7}};

// Returns the traffic of one collective whose operand is bf16[operand] and whose result is bf16[result].
Traffic of_one(const std::string& opcode, int64_t operand, int64_t result,
               const std::vector<std::vector<int64_t>>& groups, int64_t devices_per_host = 8) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, {kBF16, {operand}});
  build.collective(opcode, {kBF16, {result}}, p, groups);
  const std::vector<Traffic> rows = traffic_of(build.module(), kMesh, devices_per_host);
  EXPECT_EQ(rows.size(), 1u);
  return rows.empty() ? Traffic() : rows[0];
}

TEST(Traffic, EachCollectiveFollowsItsFormula) {
  EXPECT_EQ(of_one("all-gather", 100, 400, kFsdp).sent_bytes(), 3 * 200);
  EXPECT_EQ(of_one("all-gather", 100, 400, kFsdp).payload_bytes, 800);
  EXPECT_EQ(of_one("reduce-scatter", 400, 100, kFsdp).sent_bytes(), 3 * 200);
  EXPECT_EQ(of_one("all-reduce", 400, 400, kFsdp).sent_bytes(), 2 * 3 * 200);
  EXPECT_EQ(of_one("all-to-all", 400, 400, kFsdp).sent_bytes(), 3 * 200);
  EXPECT_EQ(of_one("all-reduce", 400, 400, {}).sent_bytes(), 2 * 7 * 100) << "no groups: all devices";
}

TEST(Traffic, AxesAreThoseAlongWhichTheGroupsLie) {
  EXPECT_EQ(of_one("all-reduce", 8, 8, kFsdp).axes, "fsdp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, kDp).axes, "dp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, kAll).axes, "dp+fsdp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, {}).axes, "dp+fsdp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, {{0, 2}, {1, 3}, {4, 6}, {5, 7}}).axes, "part of fsdp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, {{0, 5}, {1, 6}, {2, 7}, {3, 4}}).axes, "part of dp+fsdp");
  EXPECT_EQ(of_one("all-reduce", 8, 8, kAll).group, 8);
}

TEST(Traffic, DevicesOfAHostShareItsNetworkTraffic) {
  // There are two hosts of four devices. The groups of fsdp are within a host.
  const Traffic within = of_one("all-gather", 100, 400, kFsdp, 4);
  EXPECT_FALSE(within.across_hosts);
  EXPECT_EQ(within.network_bytes, 0);
  EXPECT_EQ(within.link_bytes, 600);
  // Each group has one device per host, so all bytes go over the network.
  const Traffic between = of_one("all-reduce", 400, 400, kDp, 4);
  EXPECT_TRUE(between.across_hosts);
  EXPECT_EQ(between.network_bytes, 800);
  EXPECT_EQ(between.link_bytes, 0);
  // Groups that span both hosts: each of a host's four devices sends a quarter of its bytes over the network.
  const Traffic both = of_one("all-gather", 100, 800, kAll, 4);
  EXPECT_EQ(both.sent_bytes(), 7 * 200);
  EXPECT_EQ(both.network_bytes, 7 * 200 / 4);
  // In an all-to-all, each device sends an eighth of its operand to each of the four devices on the other host.
  const Traffic swap = of_one("all-to-all", 800, 800, kAll, 4);
  EXPECT_EQ(swap.network_bytes, 4 * 200);
  EXPECT_EQ(swap.link_bytes, 3 * 200);
}

TEST(Traffic, LoopsMultiply) {
  HloBuilder build;
  const int64_t inner = build.computation("inner");
  const int64_t p = build.parameter(0, {kBF16, {100}});
  build.collective("all-gather", {kBF16, {400}}, p, kFsdp);
  const int64_t outer = build.computation("outer");
  build.loop(inner, 5);
  build.computation("main");
  build.loop(outer, 3);
  build.loop(inner, -1);  // an unknown number of trips counts as one trip
  const std::vector<Traffic> rows = traffic_of(build.module(), kMesh, 8);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].executions, 16);
  EXPECT_EQ(rows[0].asynchronous, 0);
  EXPECT_EQ(rows[0].sent_bytes(), 16 * 600);
  EXPECT_EQ(collective_bytes(rows), 16 * 600);
}

TEST(Traffic, AsynchronousFormsCountOnce) {
  HloBuilder build;
  const int64_t wrapped = build.computation("wrapped");
  const int64_t inner = build.parameter(0, {kBF16, {100}});
  build.collective("all-gather", {kBF16, {400}}, inner, kFsdp);
  const int64_t body = build.computation("body");
  const int64_t p = build.parameter(0, {kBF16, {100}});
  hlo::Instruction& start = build.add("async-start", {{kBF16, {100}}, {kBF16, {400}}}, {p});
  start.add_called_computation_ids(wrapped);
  build.add("async-done", {{kBF16, {400}}}, {start.id()});
  build.computation("main");
  build.loop(body, 6);
  const int64_t q = build.parameter(0, {kBF16, {100}});
  hlo::Instruction& old = build.collective("all-gather-start", {kBF16, {}}, q, kFsdp);
  old.mutable_shape()->Clear();
  old.mutable_shape()->set_element_type(13);
  HloBuilder::fill(*old.mutable_shape()->add_tuple_shapes(), {kBF16, {100}});
  HloBuilder::fill(*old.mutable_shape()->add_tuple_shapes(), {kBF16, {400}});
  build.add("all-gather-done", {{kBF16, {400}}}, {old.id()});
  build.collective("all-gather", {kBF16, {400}}, q, kFsdp);
  const std::vector<Traffic> rows = traffic_of(build.module(), kMesh, 8);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].executions, 8);
  EXPECT_EQ(rows[0].asynchronous, 7);
  EXPECT_EQ(rows[0].payload_bytes, 8 * 800);
}

TEST(Traffic, RowsAreByKindAndAxesTheLargestFirst) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, {kBF16, {400}});
  build.collective("all-reduce", {kBF16, {400}}, p, kDp);
  build.collective("all-reduce", {kBF16, {400}}, p, kFsdp);
  build.collective("all-reduce", {kBF16, {400}}, p, kDp);
  build.collective("reduce-scatter", {kBF16, {100}}, p, kFsdp);
  build.collective("all-reduce", {kBF16, {400}}, p, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});  // groups of one device
  const std::vector<Traffic> rows = traffic_of(build.module(), kMesh, 8);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].axes, "dp");
  EXPECT_EQ(rows[0].sent_bytes(), 2 * 800);
  EXPECT_EQ(rows[1].axes, "fsdp");
  EXPECT_EQ(rows[1].sent_bytes(), 1200);
  EXPECT_EQ(rows[2].collective, "reduce-scatter");
}

TEST(Traffic, PermutesConnectTheirPairs) {
  HloBuilder build;
  build.computation("main");
  const int64_t p = build.parameter(0, {kBF16, {400}});
  hlo::Instruction& made = build.add("collective-permute", {{kBF16, {400}}}, {p});
  for (int device = 0; device < 8; ++device) {
    hlo::SourceTarget& pair = *made.add_source_target_pairs();
    pair.set_source(device);
    pair.set_target(device / 4 * 4 + (device + 1) % 4);
  }
  std::vector<Traffic> rows = traffic_of(build.module(), kMesh, 4);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].axes, "fsdp");
  EXPECT_EQ(rows[0].link_bytes, 800);
  EXPECT_FALSE(rows[0].across_hosts);
  rows = traffic_of(build.module(), kMesh, 2);
  EXPECT_EQ(rows[0].network_bytes, 800);
  EXPECT_EQ(rows[0].link_bytes, 0);
  EXPECT_TRUE(rows[0].across_hosts);
}

}  // namespace
}  // namespace fettle
