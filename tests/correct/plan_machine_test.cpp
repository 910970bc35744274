// Tests which hosts of a planned machine count as connected by fast links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "gpu_plugin.h"
#include "graph/ops.h"
#include "paths.h"
#include "plan/compiled/hlo.h"
#include "plan/compiled/traffic.h"
#include "plan/machine.h"
#include "plan/step_plan.h"
#include "resolve_run.h"

namespace fettle {
namespace {

// "racks x hosts x devices"
TEST(Machine, OnlyHostsOfARackAreOneDomain) {
  const Target &h100 = target_named("h100"), &gb200 = target_named("gb200");
  EXPECT_EQ(topology_shape(h100, 1, 8), "1x1x8");
  EXPECT_EQ(topology_shape(h100, 2, 8), "2x1x8");
  EXPECT_EQ(topology_shape(gb200, 1, 4), "1x1x4");
  EXPECT_EQ(topology_shape(gb200, 2, 8), "1x2x8");
  EXPECT_EQ(topology_shape(gb200, 18, 4), "1x18x4");
  EXPECT_EQ(topology_shape(target_named("gb300"), 18, 4), "1x18x4");
  EXPECT_EQ(topology_shape(gb200, 36, 4), "2x18x4");
  EXPECT_EQ(topology_shape(gb200, 20, 4), "20x1x4") << "neither one rack nor full racks";
  EXPECT_EQ(linked_devices(h100, 2, 8), 8);
  EXPECT_EQ(linked_devices(gb200, 18, 4), 72);
  EXPECT_EQ(linked_devices(gb200, 36, 4), 72);
  EXPECT_EQ(linked_devices(gb200, 20, 4), 4);
}

// Returns a program whose devices sum their rows.
Program sum_over(const MeshAxes& mesh) {
  Program program(mesh);
  BuildScope scope(program.block());
  const Tensor rows = program.input("rows", {DType::kF32, {mesh.size(), 1 << 20}}, {{{mesh.axes[0].first}, {}}});
  program.output("sum", reduce_sum(rows, {0}));
  return program;
}

// The hosts of "gb200:2x2" are in one rack, those of "h100:2x2" are not.
constexpr std::array kTargets{"gb200:2x2", "h100:2x2"};

Request request_for(const std::string& target, int64_t devices = 4) {
  Recipe recipe;
  recipe.model_name_or_path = (source_folder() / "tests/reference/models/llama").string();
  recipe.target = target;
  recipe.mesh = {{"fsdp", devices}};
  recipe.lora_rank = 4;
  recipe.cutoff_len = 64;
  return Request(recipe, Command::kPlan);
}

// A host usually has at most eight devices, and a rack of GB200 has 72.
TEST(Machine, ManyDevicesNeedTheNumberOfHosts) {
  EXPECT_EQ(machine_size(request_for("h100", 8)).per_host, 8);
  EXPECT_EQ(machine_size(request_for("h100:16", 16)).per_host, 16);
  EXPECT_EQ(machine_size(request_for("h100:2x8", 16)).hosts, 2);
  EXPECT_EQ(machine_size(request_for("gb200", 72)).count(), 72);
  EXPECT_THAT([] { machine_size(request_for("h100", 16)); },
              testing::ThrowsMessage<UserError>(testing::HasSubstr("write h100:HOSTSxDEVICES (such as h100:2x8)")));
}

void expect_network_outside_racks(const std::vector<Traffic>& rows, const std::string& target) {
  double network = 0, links = 0;
  for (const Traffic& row : rows) network += row.network_bytes, links += row.link_bytes;
  EXPECT_GT(links, 0) << target;
  EXPECT_EQ(network > 0, target == "h100:2x2") << target;
}

TEST(Machine, OnlyHostsOutsideARackUseTheNetwork) {
  require_gpu_plugin("cuda");
  if (IsSkipped()) return;
  const MeshAxes mesh{{{"fsdp", 4}}};
  for (const char* target : kTargets) {
    const Machine machine = Machine::of(request_for(target));
    const HloModule module = read_hlo(machine.compile(sum_over(mesh), false).optimized);
    expect_network_outside_racks(traffic_of(module, mesh, machine.linked_devices()), target);
  }
}

TEST(Machine, OnlyStepsOutsideARackUseTheNetwork) {
  require_gpu_plugin("cuda");
  if (IsSkipped()) return;
  for (const char* target : kTargets) {
    const Request request = request_for(target);
    expect_network_outside_racks(plan_step(request, {}, Machine::of(request)).traffic, target);
  }
}

}  // namespace
}  // namespace fettle
