#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "hlo_builder.h"
#include "plan/compiled/timeline.h"
#include "plan/compiled/traffic.h"

namespace fettle {
namespace {

// Returns a program with a loop, a gather, a fusion, a dot and device groups along a mesh axis.
HloBuilder small_program() {
  HloBuilder build;
  const int64_t fused = build.computation("fused");
  const int64_t inner = build.parameter(0, {HloBuilder::kBF16, {4, 8}});
  build.add("dynamic-slice", {{HloBuilder::kBF16, {1, 8}}}, {inner});
  const int64_t body = build.computation("body");
  const int64_t p = build.parameter(0, {HloBuilder::kBF16, {4, 8}});
  build.add("fusion", {{HloBuilder::kBF16, {1, 8}}}, {p}).add_called_computation_ids(fused);
  build.collective("all-gather", {HloBuilder::kBF16, {16, 8}}, p, {{0, 1, 2, 3}, {4, 5, 6, 7}});
  hlo::MeshGroups& mesh = *build.collective("all-reduce", {HloBuilder::kBF16, {4, 8}}, p, {}).mutable_mesh_groups();
  for (int size : {2, 4}) mesh.mutable_mesh()->add_axes()->set_size(size);
  mesh.add_axes()->set_axis(1);
  const int64_t entry = build.computation("main");
  build.loop(body, 3);
  build.dot(4, 8, 16);
  auto& sequence = (*build.message.mutable_module()->mutable_schedule()->mutable_sequences())[entry];
  for (const hlo::Instruction& instruction : build.current->instructions())
    sequence.add_instruction_ids(instruction.id());
  return build;
}

void expect_error(const HloBuilder& build, const std::string& words) {
  try {
    read_hlo(build.bytes());
    FAIL() << "no error with \"" << words << '"';
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// Checks that the bytes are either refused or read without harm.
void expect_no_harm(std::string_view bytes) {
  try {
    const HloModule module = read_hlo(bytes);
    const MeshAxes mesh{{{"dp", 2}, {"fsdp", 4}}};
    traffic_of(module, mesh, 4);
    estimate(module, mesh, target_named("mi300x"), 4);
  } catch (const DeviceError&) {
  }
}

TEST(HloErrors, OtherBytesAreRefused) {
  EXPECT_NO_THROW(read_hlo(small_program().bytes()));
  EXPECT_THROW(read_hlo(""), DeviceError);
  EXPECT_THROW(read_hlo("HloModule jit_step, is_scheduled=true"), DeviceError);
  EXPECT_THROW(read_hlo(std::string(1000, '\xff')), DeviceError);
}

TEST(HloErrors, EveryTruncationAndManyMutations) {
  const std::string bytes = small_program().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) expect_no_harm(std::string_view(bytes).substr(0, size));
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = bytes;
    for (uint32_t n = random() % 4 + 1; n > 0; --n) changed[random() % changed.size()] = static_cast<char>(random());
    expect_no_harm(changed);
  }
}

TEST(HloErrors, DanglingReferences) {
  HloBuilder build = small_program();
  build.add("negate", {{HloBuilder::kF32, {}}}, {999});
  build.message.mutable_module()->clear_schedule();
  expect_error(build, "instruction 999, which does not exist");
  build = small_program();
  build.message.mutable_module()->clear_schedule();
  build.message.mutable_module()->mutable_computations(2)->mutable_instructions(0)->set_called_computation_ids(0, 998);
  expect_error(build, "computation 998, which does not exist");
  build = small_program();
  build.message.mutable_module()->set_entry_computation_id(997);
  expect_error(build, "entry computation 997, which does not exist");
  build = small_program();
  build.message.mutable_module()->mutable_computations(0)->set_root_id(996);
  expect_error(build, "root 996, which does not exist");
  build = small_program();
  build.message.mutable_module()
      ->mutable_computations(0)
      ->mutable_instructions(0)
      ->mutable_backend_config_payload()
      ->set_id(5);
  expect_error(build, "payload 5, but there are 0 payloads");
}

TEST(HloErrors, CallsInACircle) {
  HloBuilder build = small_program();
  hlo::Module& module = *build.message.mutable_module();
  module.mutable_computations(0)->mutable_instructions(0)->add_called_computation_ids(module.computations(2).id());
  expect_error(build, "calls main, which comes after it");
}

TEST(HloErrors, InstructionsThatUseThemselves) {
  HloBuilder build = small_program();
  build.message.mutable_module()->clear_schedule();
  hlo::Instruction& made = build.add("bitcast", {{HloBuilder::kF32, {}}}, {1});
  made.set_operand_ids(0, made.id());
  expect_error(build, "which comes after it");
}

TEST(HloErrors, ImpossibleShapesAndGroups) {
  HloBuilder build = small_program();
  hlo::Shape& shape =
      *build.message.mutable_module()->mutable_computations(0)->mutable_instructions(0)->mutable_shape();
  shape.set_dimensions(0, -1);
  expect_error(build, "has invalid dims [-1, 8]");
  shape.set_dimensions(0, int64_t{1} << 60);
  expect_error(build, "has invalid dims");
  build = small_program();
  hlo::Instruction& reduce = *build.message.mutable_module()->mutable_computations(1)->mutable_instructions(3);
  reduce.mutable_mesh_groups()->mutable_axes(0)->set_axis(2);
  expect_error(build, "mesh has 2 axes");
  reduce.mutable_mesh_groups()->mutable_axes(0)->set_axis(1);
  reduce.mutable_mesh_groups()->mutable_mesh()->mutable_axes(0)->set_size(1 << 30);
  expect_error(build, "device group of sizes");
  reduce.clear_mesh_groups();
  reduce.mutable_iota_groups()->set_num_replica_groups(2);
  reduce.mutable_iota_groups()->set_num_devices_per_group(4);
  reduce.mutable_iota_groups()->add_reshape_dims(4);
  expect_error(build, "into 2 groups of 4; the plugin may be too new");
}

TEST(HloErrors, IncompleteSchedules) {
  HloBuilder build = small_program();
  auto& sequences = *build.message.mutable_module()->mutable_schedule()->mutable_sequences();
  sequences.begin()->second.mutable_instruction_ids()->RemoveLast();
  expect_error(build, "schedule of main names 3 of 4 instructions");
}

}  // namespace
}  // namespace fettle
