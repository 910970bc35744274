#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hlo_builder.h"
#include "plan/compiled/hlo.h"

namespace fettle {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Groups = std::vector<std::vector<int64_t>>;

const HloInstruction& last(const HloModule& module) {
  return module.computations[module.entry].instructions.back();
}

TEST(Hlo, ReadsShapesAndNames) {
  HloBuilder build(4);
  build.computation("main");
  const int64_t p = build.parameter(3, {HloBuilder::kBF16, {128, 16}});
  hlo::Instruction& made = build.add("custom-call", {{HloBuilder::kF32, {2, 3}}, {HloBuilder::kS32, {}}}, {p, p});
  made.set_custom_call_target("target");
  made.set_backend_config("text");
  made.mutable_metadata()->set_op_name("layers/mlp");
  const HloModule module = build.module();
  EXPECT_EQ(module.name, "by_hand");
  EXPECT_EQ(module.devices, 4);
  EXPECT_FALSE(module.scheduled);
  const HloComputation& main = module.computations[module.entry];
  EXPECT_EQ(main.name, "main");
  ASSERT_EQ(main.instructions.size(), 2u);
  EXPECT_EQ(main.instructions[0].parameter_number, 3);
  EXPECT_EQ(main.instructions[0].results[0], (HloArray{"bf16", 16, {128, 16}}));
  EXPECT_EQ(main.instructions[0].bytes(), 128 * 16 * 2);
  const HloInstruction& call = main.root_instruction();
  EXPECT_THAT(call.results, ElementsAre(HloArray{"f32", 32, {2, 3}}, HloArray{"s32", 32, {}}));
  EXPECT_EQ(call.bytes(), 2 * 3 * 4 + 4);
  EXPECT_THAT(call.operands, ElementsAre(0, 0));
  EXPECT_EQ(call.custom_call_target, "target");
  EXPECT_EQ(call.backend_config, "text");
  EXPECT_EQ(call.op_name, "layers/mlp");
}

TEST(Hlo, FourBitElementsTakeHalfAByte) {
  HloBuilder build;
  build.computation("main");
  build.add("parameter", {{HloBuilder::kF32, {3, 5}}}).mutable_shape()->set_element_type(21);
  EXPECT_EQ(last(build.module()).results[0], (HloArray{"s4", 4, {3, 5}}));
  EXPECT_EQ(last(build.module()).results[0].bytes(), 8);
}

TEST(Hlo, TheScheduleOrdersTheInstructions) {
  HloBuilder build;
  const int64_t entry = build.computation("main");
  const int64_t a = build.parameter(0, {HloBuilder::kF32, {1}}), b = build.parameter(1, {HloBuilder::kF32, {2}});
  const int64_t sum = build.add("add", {{HloBuilder::kF32, {1}}}, {a, b}).id();
  auto& sequence = (*build.message.mutable_module()->mutable_schedule()->mutable_sequences())[entry];
  for (int64_t id : {b, a, sum}) sequence.add_instruction_ids(id);
  const HloModule module = build.module();
  EXPECT_TRUE(module.scheduled);
  const HloComputation& main = module.computations[module.entry];
  EXPECT_EQ(main.instructions[0].parameter_number, 1);
  EXPECT_EQ(main.instructions[1].parameter_number, 0);
  EXPECT_THAT(main.root_instruction().operands, ElementsAre(1, 0)) << "operands have the new positions";
}

TEST(Hlo, TripCountsAreInTheConfigurationOrAmongThePayloads) {
  HloBuilder build;
  const int64_t body = build.computation("body");
  build.parameter(0, {HloBuilder::kS32, {}});
  build.computation("main");
  build.loop(body, 126);
  EXPECT_EQ(last(build.module()).trip_count, 126);
  EXPECT_THAT(last(build.module()).called, ElementsAre(0));
  build.message.mutable_module()->add_payloads("other");
  build.message.mutable_module()->add_payloads(R"({"known_trip_count":{"n":7}})");
  build.add("while", {{HloBuilder::kS32, {}}}).mutable_backend_config_payload()->set_id(1);
  EXPECT_EQ(last(build.module()).trip_count, 7);
  build.add("while", {{HloBuilder::kS32, {}}}).mutable_backend_config_payload()->set_value("{}");
  EXPECT_EQ(last(build.module()).trip_count, -1);
}

// Each test writes groups of devices in one of the forms that a program can use. The tests use 8 devices, mostly as a
// box of 2 x 2 x 2.
class HloGroups : public ::testing::Test {
 protected:
  HloGroups() {
    build.computation("main");
    const int64_t p = build.parameter(0, {HloBuilder::kF32, {8}});
    made = &build.collective("all-reduce", {HloBuilder::kF32, {8}}, p, {});
    made->clear_device_list();
  }
  Groups groups() const { return last(build.module()).groups; }
  HloBuilder build{8};
  hlo::Instruction* made;
};

TEST_F(HloGroups, NoGroupsMeanAllDevices) {
  EXPECT_TRUE(groups().empty());
}

TEST_F(HloGroups, Lists) {
  for (int first : {0, 1, 4, 5}) {
    hlo::ReplicaGroup& old = *made->add_replica_groups();
    old.add_replica_ids(first);
    old.add_replica_ids(first + 2);
  }
  EXPECT_THAT(groups(),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  hlo::ReplicaGroup& other = *made->mutable_device_list()->add_replica_groups();
  other.add_replica_ids(6);
  EXPECT_THAT(groups(), ElementsAre(ElementsAre(6))) << "the newer field takes precedence";
}

TEST_F(HloGroups, IotasAreTransposed) {
  const auto fill = [](hlo::IotaGroups& iota) {
    iota.set_num_replica_groups(4);
    iota.set_num_devices_per_group(2);
    for (int size : {2, 2, 2}) iota.add_reshape_dims(size);
    for (int dim : {0, 2, 1}) iota.add_transpose_perm(dim);
  };
  fill(*made->mutable_iota_groups());
  EXPECT_THAT(groups(), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  made->clear_iota_groups();
  fill(*made->mutable_device_list()->mutable_iota());
  EXPECT_THAT(groups(), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  made->mutable_device_list()->mutable_iota()->clear_transpose_perm();
  EXPECT_THAT(groups(), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
}

TEST_F(HloGroups, IotaOfARotatedBox) {
  hlo::IotaGroups& iota = *made->mutable_iota_groups();
  iota.set_num_replica_groups(2);
  iota.set_num_devices_per_group(4);
  for (int size : {4, 2}) iota.add_reshape_dims(size);
  for (int dim : {1, 0}) iota.add_transpose_perm(dim);
  EXPECT_THAT(groups(), ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST_F(HloGroups, MeshAxes) {
  hlo::MeshGroups& mesh = *made->mutable_mesh_groups();
  for (int a = 0; a < 3; ++a) {
    mesh.mutable_mesh()->add_axes()->set_size(2);
  }
  mesh.add_axes()->set_axis(1);
  EXPECT_THAT(groups(),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  mesh.add_axes()->set_axis(0);
  EXPECT_THAT(groups(), UnorderedElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST_F(HloGroups, PartsOfAMeshAxis) {
  hlo::MeshGroups& mesh = *made->mutable_mesh_groups();
  mesh.mutable_mesh()->add_axes()->set_size(8);
  hlo::AxisRef& ref = *mesh.add_axes();
  ref.set_axis(0);
  ref.mutable_part()->set_pre_size(2);
  ref.mutable_part()->set_size(2);
  EXPECT_THAT(groups(),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
}

TEST_F(HloGroups, MeshesOfOtherOrders) {
  hlo::MeshGroups& mesh = *made->mutable_mesh_groups();
  for (int size : {4, 2}) mesh.mutable_mesh()->add_axes()->set_size(size);
  mesh.add_axes()->set_axis(1);
  for (int id : {0, 2, 1, 3, 4, 6, 5, 7}) mesh.mutable_mesh()->add_device_ids(id);
  EXPECT_THAT(groups(),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
  mesh.mutable_mesh()->clear_device_ids();
  for (int size : {2, 2, 2}) mesh.mutable_mesh()->mutable_iota()->add_reshape_dims(size);
  for (int dim : {0, 2, 1}) mesh.mutable_mesh()->mutable_iota()->add_transpose_perm(dim);
  EXPECT_THAT(groups(),
              UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4, 6), ElementsAre(5, 7)));
}

}  // namespace
}  // namespace fettle
