// The FFI handler of cpu_linear.
#include "kernels/cpu/ffi_operands.h"
#include "kernels/cpu/plugin_threads.h"
#include "kernels/cpu/products/linear_kernel.h"
#include "kernels/cpu/products/matrix_product.h"
#include "kernels/cpu/sliced_operands.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;

ffi::Error product_call(int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned, ffi::ThreadPool pool,
                        ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> c,
                        ffi::Result<ffi::AnyBuffer> workspace) {
  if (!is_known(a.element_type()) || !is_known(b.element_type()) || !is_known(c->element_type()) ||
      elements_of(a) != m * k || elements_of(b) != k * n || elements_of(*c) != m * n)
    return wrong_operands("cpu_linear");
  const MatrixProduct product{.m = m,
                              .n = n,
                              .k = k,
                              .a = {a.untyped_data(), dtype_of(a.element_type()), a_turned},
                              .b = {b.untyped_data(), dtype_of(b.element_type()), b_turned},
                              .result = dtype_of(c->element_type()),
                              .threads = pool.num_threads()};
  if (elements_of(*workspace) < product_workspace(product)) return wrong_operands("cpu_linear");
  multiply(product, c->untyped_data(), workspace->untyped_data(), plugin_threads(pool));
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
  register_kernel<product_handler>(plugin, kProductTarget);
}

}  // namespace fettle::cpu
