#include <gtest/gtest.h>

#include <atomic>

#include "correct/runtime_programs.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;

std::atomic<int> calls;

ffi::Error scale(float factor, int32_t device, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  ++calls;
  for (size_t i = 0; i < x.element_count(); ++i) {
    y->typed_data()[i] = factor * x.typed_data()[i] + 1000 * static_cast<float>(device);
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(scale_handler, scale,
                              ffi::Ffi::Bind()
                                  .Attr<float>("factor")
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

ffi::Error fail(ffi::Buffer<ffi::F32>, ffi::ResultBuffer<ffi::F32>) {
  return ffi::Error(ffi::ErrorCode::kInternal, "the handler gave up");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(fail_handler, fail,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Returns a module in which each device executes `call` on its own rows.
std::string in_manual_region(const std::string& call) {
  return R"(
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(%a: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%b: tensor<2x4xf32>) {
      %1 = stablehlo.custom_call )" +
         call + R"( : (tensor<2x4xf32>) -> tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>
    } : (tensor<16x4xf32>) -> tensor<16x4xf32>
    return %0 : tensor<16x4xf32>
  }
})";
}

const ArgInfo kRows{"a", Shape{DType::kF32, {16, 4}}, rows_over_8({16, 4})};

TEST(Ffi, HandlersSeeTheShardOfTheirDevice) {
  const Client& client = eight_devices();
  ASSERT_TRUE(has_ffi(client.plugin()));
  register_ffi_handler<scale_handler>(client.plugin(), "test_scale");
  register_ffi_handler<scale_handler>(client.plugin(), "test_scale");  // registering it again has no effect
  EXPECT_THROW(register_ffi_handler<fail_handler>(client.plugin(), "test_scale"), InternalError);
  const Executable program =
      client.compile(in_manual_region("@test_scale(%b) {api_version = 4 : i32, backend_config = {factor = 2.0 : f32}}"),
                     {{kRows}, {kRows}}, {.num_partitions = 8});
  calls = 0;
  DeviceBuffer a = DeviceBuffer::upload(client, f32_array({16, 4}, std::vector<float>(64, 3)), kRows.layout);
  const HostArray result = program.run({&a})[0].download();
  EXPECT_EQ(calls, 8);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result.as<float>()[i], 6 + 1000 * (i / 8));
}

TEST(Ffi, AHandlersErrorIsThrownWhenTheResultIsRead) {
  const Client& client = eight_devices();
  register_ffi_handler<fail_handler>(client.plugin(), "test_fail");
  const Executable program = client.compile(in_manual_region("@test_fail(%b) {api_version = 4 : i32}"),
                                            {{kRows}, {kRows}}, {.num_partitions = 8});
  DeviceBuffer a = DeviceBuffer::upload(client, f32_array({16, 4}, std::vector<float>(64, 3)), kRows.layout);
  const std::vector<DeviceBuffer> out = program.run({&a});
  for (int again = 0; again < 2; ++again) {
    try {
      out[0].download();
      FAIL() << "no error";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("the handler gave up"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(program.wait(), DeviceError);
  EXPECT_EQ(a.download().as<float>()[0], 3) << "the client still works";
}

}  // namespace
}  // namespace fettle
