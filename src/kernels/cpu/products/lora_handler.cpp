// The FFI handlers of cpu_lora.
#include "kernels/cpu/ffi_operands.h"
#include "kernels/cpu/plugin_threads.h"
#include "kernels/cpu/products/lora_kernel.h"
#include "kernels/cpu/products/lora_product.h"
#include "kernels/cpu/sliced_operands.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;
using LoraResult = ffi::Result<ffi::AnyBuffer>;

// Returns nullopt if an operand has another size or dtype than the attributes say.
std::optional<LoraProblem> lora_problem(int64_t rows, int64_t in, int64_t out, int64_t rank, bool transposed,
                                        float scale, ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer a,
                                        ffi::AnyBuffer b) {
  const ffi::DataType type = x.element_type();
  if (!is_known(type) || !is_known(weight.element_type()) || a.element_type() != type || b.element_type() != type ||
      elements_of(x) != rows * in || elements_of(weight) != in * out || elements_of(a) != rank * in ||
      elements_of(b) != out * rank)
    return std::nullopt;
  return LoraProblem{.rows = rows,
                     .in = in,
                     .out = out,
                     .rank = rank,
                     .dtype = dtype_of(type),
                     .weight_dtype = dtype_of(weight.element_type()),
                     .transposed = transposed,
                     .scale = scale,
                     .x = x.untyped_data(),
                     .weight = weight.untyped_data(),
                     .a = a.untyped_data(),
                     .b = b.untyped_data()};
}

ffi::Error lora_call(int64_t rows, int64_t in, int64_t out, int64_t rank, bool transposed, float scale,
                     ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer a, ffi::AnyBuffer b,
                     LoraResult y, LoraResult low, LoraResult workspace) {
  auto problem = lora_problem(rows, in, out, rank, transposed, scale, x, weight, a, b);
  if (!problem || elements_of(*y) != rows * out || elements_of(*low) != rows * rank) return wrong_operands("cpu_lora");
  problem->threads = pool.num_threads();
  if (elements_of(*workspace) < lora_workspace(*problem)) return wrong_operands("cpu_lora");
  lora_forward(*problem, y->untyped_data(), low->untyped_data(), workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

ffi::Error lora_gradient_call(int64_t rows, int64_t in, int64_t out, int64_t rank, bool transposed, float scale,
                              ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer a,
                              ffi::AnyBuffer b, ffi::AnyBuffer low, ffi::AnyBuffer dy, LoraResult dx, LoraResult da,
                              LoraResult db, LoraResult workspace) {
  auto problem = lora_problem(rows, in, out, rank, transposed, scale, x, weight, a, b);
  if (!problem || elements_of(dy) != rows * out || elements_of(low) != rows * rank || elements_of(*dx) != rows * in ||
      !is_known(da->element_type()) || da->element_type() != db->element_type())
    return wrong_operands("cpu_lora");
  problem->threads = pool.num_threads();
  if (elements_of(*workspace) < lora_gradient_workspace(*problem, dtype_of(da->element_type())))
    return wrong_operands("cpu_lora");
  lora_backward(*problem, low.untyped_data(), dy.untyped_data(),
                {dx->untyped_data(), da->untyped_data(), db->untyped_data(), dtype_of(da->element_type())},
                workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

auto with_lora_attributes() {
  return ffi::Ffi::Bind()
      .Attr<int64_t>("rows")
      .Attr<int64_t>("in")
      .Attr<int64_t>("out")
      .Attr<int64_t>("rank")
      .Attr<bool>("transposed")
      .Attr<float>("scale")
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(lora_handler, lora_call,
                              with_lora_attributes().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lora_gradient_handler, lora_gradient_call,
                              with_lora_attributes()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

}  // namespace

void register_lora(const Plugin& plugin) {
  register_kernel<lora_handler>(plugin, kLoraTarget);
  register_kernel<lora_gradient_handler>(plugin, kLoraGradientTarget);
}

}  // namespace fettle::cpu
