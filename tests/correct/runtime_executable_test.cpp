#include <gtest/gtest.h>

#include <cmath>

#include "correct/runtime_programs.h"
#include "runtime/executable.h"

namespace fettle {
namespace {

class Step : public ::testing::Test {
 protected:
  DeviceBuffer put(const Dims& dims, const std::vector<float>& values) {
    return DeviceBuffer::upload(eight_devices(), f32_array(dims, values), rows_over_8(dims));
  }
  StepOnHost host;
  DeviceBuffer w = put({16, 8}, host.w), x = put({32, 16}, host.x), y = put({32, 8}, host.y);
};

TEST_F(Step, ManyDonatedStepsOnEightDevicesMatchTheHost) {
  const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
  double first = 0, last = 0;
  for (int i = 0; i < 50; ++i) {
    std::vector<DeviceBuffer> out = step.run({&w, &x, &y});
    ASSERT_EQ(out.size(), 2u);
    EXPECT_TRUE(w.is_deleted());
    EXPECT_FALSE(x.is_deleted());
    w = std::move(out[0]);
    const double wanted = host.step();
    last = out[1].download().as<float>()[0];
    if (i == 0) first = last;
    EXPECT_NEAR(last, wanted, 1e-5 * wanted) << "step " << i;
    EXPECT_EQ(out[1].download_shard(7).as<float>()[0], static_cast<float>(last)) << "replicas agree";
  }
  EXPECT_LT(last, first * 0.6);
  const HostArray result = w.download();
  for (int i = 0; i < 128; ++i) EXPECT_NEAR(result.as<float>()[i], host.w[i], 1e-5);
}

TEST_F(Step, RunsAreQueuedWithoutWaiting) {
  const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
  std::vector<DeviceBuffer> losses;
  std::vector<double> wanted;
  for (int i = 0; i < 20; ++i) {
    std::vector<DeviceBuffer> out = step.run({&w, &x, &y});
    w = std::move(out[0]);
    losses.push_back(std::move(out[1]));
    wanted.push_back(host.step());
  }
  step.wait();
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(losses[i].download().as<float>()[0], wanted[i], 1e-5 * wanted[i]);
}

TEST_F(Step, TheSignatureDecidesWhatIsDonated) {
  // The module's text marks w as donatable, but the signature does not.
  const Executable step = eight_devices().compile(kStepText, step_signature(false), {.num_partitions = 8});
  const std::vector<DeviceBuffer> once = step.run({&w, &x, &y}), again = step.run({&w, &x, &y});
  EXPECT_FALSE(w.is_deleted());
  EXPECT_EQ(once[1].download().as<float>()[0], again[1].download().as<float>()[0]);
  const HostArray kept = w.download();
  for (int i = 0; i < 128; ++i) EXPECT_EQ(kept.as<float>()[i], host.w[i]);

  // Donates an input that the module's text does not mark. The memory of this input is released after the run.
  Signature all = step_signature();
  for (ArgInfo& input : all.inputs) input.donated = true;
  const Executable last = eight_devices().compile(kStepText, all, {.num_partitions = 8});
  const std::vector<DeviceBuffer> out = last.run({&w, &x, &y});
  EXPECT_TRUE(x.is_deleted());
  EXPECT_EQ(out[1].download().as<float>()[0], once[1].download().as<float>()[0]);
}

TEST_F(Step, ResultsOutliveTheExecutable) {
  std::vector<DeviceBuffer> out;
  {
    const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
    out = step.run({&w, &x, &y});
  }
  const double wanted = host.step();
  EXPECT_NEAR(out[1].download().as<float>()[0], wanted, 1e-5 * wanted);
}

TEST_F(Step, TellsItsMemoryAndProgram) {
  const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
  const MemoryStats stats = step.memory_stats();
  // Each device stores 1/8 of w, x and y. It returns 1/8 of the new w, in the memory of the old one, and the loss.
  EXPECT_EQ(stats.argument, (16 * 8 + 32 * 16 + 32 * 8) / 8 * 4);
  EXPECT_EQ(stats.alias, 16 * 8 / 8 * 4);
  EXPECT_GT(stats.temp, 0);
  EXPECT_EQ(stats.peak, stats.argument + stats.output - stats.alias + stats.temp);
  EXPECT_EQ(step.program().output_shapes(), (std::vector<Shape>{{DType::kF32, {2, 8}}, {DType::kF32, {}}}));
  EXPECT_NE(step.program().optimized_program().find("all-gather"), std::string::npos) << "w is gathered";
}

TEST_F(Step, SerializedProgramsLoadAndRun) {
  std::string bytes;
  {
    const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
    bytes = step.program().serialize();
  }
  const Executable step = eight_devices().load(bytes, step_signature());
  const std::vector<DeviceBuffer> out = step.run({&w, &x, &y});
  EXPECT_TRUE(w.is_deleted());
  const double wanted = host.step();
  EXPECT_NEAR(out[1].download().as<float>()[0], wanted, 1e-5 * wanted);
}

// Adds 1 to a vector split over two devices.
constexpr char kAddOne[] = R"(
module @add attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
      -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    %one = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
    %r = stablehlo.add %a, %one : tensor<4xf32>
    return %r : tensor<4xf32>
  }
})";

TEST(Executable, RunsOnChosenDevicesInTheirOrder) {
  Layout layout = Layout::sharded({4}, {2}, {{0}});
  layout.devices = {5, 2};
  const ArgInfo info{"a", Shape{DType::kF32, {4}}, layout};
  const Executable add = eight_devices().compile(kAddOne, {{info}, {info}}, {.num_partitions = 2, .devices = {5, 2}});
  DeviceBuffer a = DeviceBuffer::upload(eight_devices(), f32_array({4}, {10, 20, 30, 40}), layout);
  const HostArray sum = add.run({&a})[0].download();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sum.as<float>()[i], 10 * (i + 1) + (i + 1));
}

TEST(Executable, OneDeviceNeedsNoMesh) {
  const Client client(Plugin::load("cpu"));
  const char* text = R"(module @m { func.func public @main(%a: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xi1>) {
      %r = stablehlo.negate %a : tensor<3xf32>
      %c = stablehlo.compare LT, %a, %r : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
      return %r, %c : tensor<3xf32>, tensor<3xi1> } })";
  const Layout one = Layout::replicated({3}, 1);
  const Shape floats{DType::kF32, {3}}, bits{DType::kPred, {3}};
  const ArgInfo a_info{"a", floats, one}, c_info{"c", bits, one};
  const Executable negate = client.compile(text, {{a_info}, {a_info, c_info}});
  DeviceBuffer a = DeviceBuffer::upload(client, f32_array({3}, {1, -2, 3}), one);
  const std::vector<DeviceBuffer> out = negate.run({&a});
  EXPECT_EQ(out[0].download().as<float>()[1], 2);
  EXPECT_EQ(out[1].download().as<uint8_t>()[1], 1);
  EXPECT_EQ(out[1].download().as<uint8_t>()[0], 0);
}

TEST(Executable, ArgumentsMayLieInPinnedHostMemory) {
  const char* text = R"(
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<16xf32> {mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, tf.aliasing_output = 0 : i32})
      -> (tensor<16xf32> {mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
    %b = stablehlo.custom_call @annotate_device_placement(%a) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<16xf32>) -> tensor<16xf32>
    %c = stablehlo.add %b, %b : tensor<16xf32>
    %d = stablehlo.custom_call @annotate_device_placement(%c) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<16xf32>) -> tensor<16xf32>
    return %d : tensor<16xf32>
  }
})";
  const Layout layout = rows_over_8({16});
  const ArgInfo info{"a", Shape{DType::kF32, {16}}, layout, true, "pinned_host"};
  const Executable twice = eight_devices().compile(text, {{info}, {info}}, {.num_partitions = 8});
  std::vector<float> values(16);
  for (int i = 0; i < 16; ++i) values[i] = i;
  DeviceBuffer a = DeviceBuffer::upload(eight_devices(), f32_array({16}, values), layout, "pinned_host");
  for (int step = 0; step < 3; ++step) a = std::move(twice.run({&a})[0]);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(a.download().as<float>()[i], 8 * i);
}

}  // namespace
}  // namespace fettle
