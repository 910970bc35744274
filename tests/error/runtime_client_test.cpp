#include <gtest/gtest.h>

#include "correct/runtime_programs.h"
#include "runtime/client.h"

namespace fettle {
namespace {

template <typename Wanted, typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Wanted& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(CompileError, InvalidTextBringsTheCompilersMessage) {
  const std::string text = error_of<DeviceError>([] { eight_devices().compile("module @m { nonsense }", {}, {}); });
  expect_contains(text, "PJRT_Client_Compile");
  expect_contains(text, "nonsense");
}

TEST(CompileError, TypeErrorBringsTheCompilersMessage) {
  const std::string text = error_of<DeviceError>([] {
    eight_devices().compile(
        R"(module @m { func.func public @main(%a: tensor<4xf32>, %b: tensor<5xf32>) -> tensor<4xf32> {
        %r = stablehlo.add %a, %b : tensor<4xf32>
        return %r : tensor<4xf32> } })",
        {});
  });
  expect_contains(text, "tensor<5xf32>");
}

TEST(CompileError, UnknownTargetOfACustomCall) {
  const std::string text = error_of<DeviceError>([] {
    const ArgInfo info{"a", Shape{DType::kF32, {4}}, Layout::replicated({4}, 1)};
    eight_devices().compile(R"(module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
        %r = stablehlo.custom_call @nobody(%a) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
        return %r : tensor<4xf32> } })",
                            {{info}, {info}});
  });
  expect_contains(text, "nobody");
}

TEST(CompileError, FlagsAreCheckedByNameAndType) {
  const auto compile = [](const std::string& name, OptionValue value) {
    eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8, .env = {{name, value}}});
  };
  compile("xla_cpu_enable_fast_math", false);
  expect_contains(error_of<DeviceError>([&] { compile("xla_cpu_no_such_flag", true); }), "xla_cpu_no_such_flag");
  error_of<DeviceError>([&] { compile("xla_cpu_enable_fast_math", std::string("false")); });
}

TEST(CompileError, ResultsMustBeTheSignatures) {
  const auto compile = [](const auto& change) {
    Signature signature = step_signature();
    change(signature);
    return error_of<InternalError>([&] { eight_devices().compile(kStepText, signature, {.num_partitions = 8}); });
  };
  expect_contains(compile([](Signature& s) { s.outputs.pop_back(); }), "2 results");
  expect_contains(compile([](Signature& s) { s.outputs[0].shape.dtype = DType::kBF16; }), "bf16[2,8]");
  expect_contains(compile([](Signature& s) { s.outputs[0].layout = Layout::replicated({16, 8}, 8); }), "f32[16,8]");
  expect_contains(compile([](Signature& s) { s.inputs[1].layout.devices = {1, 0, 2, 3, 4, 5, 6, 7}; }), "x");
  expect_contains(compile([](Signature& s) { s.inputs[1].layout = Layout::replicated({32, 16}, 4); }), "4 devices");
}

TEST(ClientError, DeviceCounts) {
  error_of<UserError>([] { Client(Plugin::load("cpu"), {.device_count = -1}); });
  const std::string text =
      error_of<UserError>([] { eight_devices().compile(kStepText, step_signature(), {.num_partitions = 16}); });
  expect_contains(text, "16 devices");
  expect_contains(text, "has 8");
}

TEST(BufferError, LayoutsAndMemories) {
  const HostArray array = f32_array({4}, {1, 2, 3, 4});
  const auto upload = [&](Layout layout, const std::string& kind = "") {
    return DeviceBuffer::upload(eight_devices(), array, layout, kind);
  };
  error_of<InternalError>([&] { upload({}); });
  error_of<InternalError>([&] { upload({{Box{{0}, {5}}}}); });
  error_of<InternalError>([&] { upload({{Box{{0, 0}, {4, 1}}}}); });
  error_of<InternalError>([&] { upload({{Box{{0}, {1}}, Box{{1}, {3}}}}); });
  error_of<InternalError>([&] { upload({{Box{{0}, {2}}, Box{{2}, {2}}}, {3, 3}}); });
  error_of<InternalError>([&] { upload({{Box{{0}, {4}}}, {8}}); });
  error_of<InternalError>([&] { upload(Layout::replicated({4}, 9)); });
  error_of<InternalError>([] { Layout::sharded({6}, {4}, {{0}}); });
  error_of<InternalError>([] { Layout::sharded({8, 8}, {4}, {{0}, {0}}); });
  expect_contains(error_of<DeviceError>([&] { upload(Layout::replicated({4}, 1), "floppy"); }), "pinned_host");
}

class RunError : public ::testing::Test {
 protected:
  static DeviceBuffer put(const Dims& dims, DType dtype = DType::kF32) {
    return DeviceBuffer::zeros(eight_devices(), {dtype, dims}, rows_over_8(dims));
  }
  void expect_refused(const std::vector<DeviceBuffer*>& arguments, const std::string& part) {
    expect_contains(error_of<InternalError>([&] { step.run(arguments); }), part);
    EXPECT_FALSE(w.is_deleted());
  }
  const Executable step = eight_devices().compile(kStepText, step_signature(), {.num_partitions = 8});
  DeviceBuffer w = put({16, 8}), x = put({32, 16}), y = put({32, 8});
};

TEST_F(RunError, ArgumentsAreCheckedBeforeTheLaunch) {
  DeviceBuffer transposed = put({8, 16}), half = put({16, 8}, DType::kBF16), integer = put({32, 16}, DType::kI32);
  DeviceBuffer whole = DeviceBuffer::zeros(eight_devices(), {DType::kF32, {32, 8}}, Layout::replicated({32, 8}, 8));
  DeviceBuffer pinned =
      DeviceBuffer::zeros(eight_devices(), {DType::kF32, {32, 8}}, rows_over_8({32, 8}), "pinned_host");
  DeviceBuffer gone = put({32, 8}), empty;
  gone.release();
  expect_refused({&w, &x}, "2 arguments");
  expect_refused({&w, &x, &y, &y}, "4 arguments");
  expect_refused({&transposed, &x, &y}, "f32[8,16]");
  expect_refused({&w, &y, &x}, "argument 1 (x)");
  expect_refused({&half, &x, &y}, "bf16[16,8]");
  expect_refused({&w, &integer, &y}, "i32[32,16]");
  expect_refused({&w, &x, &whole}, "layout");
  expect_refused({&w, &x, &pinned}, "pinned_host");
  expect_refused({&w, &x, &gone}, "argument 2 (y)");
  expect_refused({&w, &x, &empty}, "no buffer given");
  expect_refused({&w, &x, nullptr}, "no buffer given");
  // After the errors, the client still works.
  EXPECT_EQ(step.run({&w, &x, &y})[1].download().as<float>()[0], 0);
}

TEST_F(RunError, DonatedBuffersAreUsedOnce) {
  const std::vector<DeviceBuffer> out = step.run({&w, &x, &y});
  const std::string text = error_of<InternalError>([&] { step.run({&w, &x, &y}); });
  expect_contains(text, "argument 0 (w)");
  error_of<InternalError>([&] { w.download(); });
}

TEST_F(RunError, OneBufferTwiceWhileDonated) {
  const char* text = R"(
module @m { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) -> tensor<4xf32> {
    %r = stablehlo.add %a, %b : tensor<4xf32>
    return %r : tensor<4xf32> } })";
  const ArgInfo info{"a", Shape{DType::kF32, {4}}, Layout::replicated({4}, 1)};
  ArgInfo donated = info;
  donated.donated = true;
  const Executable add = eight_devices().compile(text, {{donated, info}, {info}});
  DeviceBuffer a = DeviceBuffer::zeros(eight_devices(), info.shape, info.layout);
  expect_contains(error_of<InternalError>([&] { add.run({&a, &a}); }), "given twice");
}

TEST_F(RunError, BuffersOfAnotherClient) {
  const Client other(Plugin::load("cpu"), {.device_count = 8});
  DeviceBuffer foreign = DeviceBuffer::zeros(other, {DType::kF32, {16, 8}}, rows_over_8({16, 8}));
  expect_refused({&foreign, &x, &y}, "another client");
}

}  // namespace
}  // namespace fettle
