// The FFI handler of cpu_linear.
#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/matrix_product.h"
#include "kernels/cpu/plugin_threads.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;

bool is_known(ffi::DataType type) {
  return type == ffi::F32 || type == ffi::BF16;
}
DType dtype_of(ffi::DataType type) {
  return type == ffi::F32 ? DType::kF32 : DType::kBF16;
}

ffi::Error product_call(int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned, ffi::ThreadPool pool,
                        ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> c,
                        ffi::Result<ffi::AnyBuffer> workspace) {
  const auto elements = [](const auto& buffer) { return static_cast<int64_t>(buffer.element_count()); };
  if (!is_known(a.element_type()) || !is_known(b.element_type()) || !is_known(c->element_type()) ||
      elements(a) != m * k || elements(b) != k * n || elements(*c) != m * n)
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "cpu_linear: an operand has a wrong size or dtype");
  multiply({.m = m,
            .n = n,
            .k = k,
            .a = {a.untyped_data(), dtype_of(a.element_type()), a_turned},
            .b = {b.untyped_data(), dtype_of(b.element_type()), b_turned},
            .result = dtype_of(c->element_type())},
           c->untyped_data(), workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(product_handler, product_call,
                              ffi::Ffi::Bind()
                                  .Attr<int64_t>("m")
                                  .Attr<int64_t>("n")
                                  .Attr<int64_t>("k")
                                  .Attr<bool>("a_turned")
                                  .Attr<bool>("b_turned")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

}  // namespace

void register_linear(const Plugin& plugin) {
  register_ffi_handler<product_handler>(plugin, kProductTarget);
}

}  // namespace fettle::cpu
