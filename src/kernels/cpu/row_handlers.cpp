// The FFI handlers of the kernels in row_kernels.h. Each row is computed by one task, so results do not depend on the
// number of threads.
#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/each_range.h"
#include "kernels/cpu/ffi_operands.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/sliced_operands.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;
using RowFloats = ffi::Buffer<ffi::F32>;
using RowInts = ffi::Buffer<ffi::S32>;
using RowResult = ffi::Result<ffi::AnyBuffer>;

bool alike(const ffi::AnyBuffer& x, const ffi::AnyBuffer& y) {
  return x.element_type() == y.element_type() && elements_of(x) == elements_of(y);
}

const RowOps& row_ops() {
  return block_ops(DType::kBF16).rows;
}

ffi::Error gated_call(bool silu, ffi::ThreadPool pool, ffi::AnyBuffer gate, ffi::AnyBuffer up, RowResult out) {
  if (!is_known(gate.element_type()) || !alike(gate, up) || !alike(gate, *out)) return wrong_operands("cpu_gated");
  const DType dtype = dtype_of(gate.element_type());
  each_range(pool, elements_of(gate), 1, [&](int64_t first, int64_t count) {
    row_ops().gated(silu ? Gate::kSilu : Gate::kGeluTanh, dtype, count, at(gate.untyped_data(), dtype, first),
                    at(up.untyped_data(), dtype, first), at(out->untyped_data(), dtype, first));
  });
  return ffi::Error::Success();
}

ffi::Error gated_gradient_call(bool silu, ffi::ThreadPool pool, ffi::AnyBuffer gate, ffi::AnyBuffer up,
                               ffi::AnyBuffer d_out, RowResult d_gate, RowResult d_up) {
  if (!is_known(gate.element_type()) || !alike(gate, up) || !alike(gate, d_out) || !alike(gate, *d_gate) ||
      !alike(gate, *d_up))
    return wrong_operands("cpu_gated");
  const DType dtype = dtype_of(gate.element_type());
  each_range(pool, elements_of(gate), 1, [&](int64_t first, int64_t count) {
    row_ops().gated_gradient(silu ? Gate::kSilu : Gate::kGeluTanh, dtype, count, at(gate.untyped_data(), dtype, first),
                             at(up.untyped_data(), dtype, first), at(d_out.untyped_data(), dtype, first),
                             at(d_gate->untyped_data(), dtype, first), at(d_up->untyped_data(), dtype, first));
  });
  return ffi::Error::Success();
}

ffi::Error rms_norm_call(float eps, ffi::ThreadPool pool, ffi::AnyBuffer x, RowFloats weight, RowResult y,
                         ffi::Result<RowFloats> inverse) {
  const int64_t width = elements_of(weight);
  if (!is_known(x.element_type()) || width == 0 || !alike(x, *y) || elements_of(*inverse) * width != elements_of(x))
    return wrong_operands("cpu_rms_norm");
  const DType dtype = dtype_of(x.element_type());
  each_range(pool, elements_of(x) / width, width, [&](int64_t first, int64_t count) {
    row_ops().norm({dtype, count, width, at(x.untyped_data(), dtype, first * width), weight.typed_data()}, eps,
                   at(y->untyped_data(), dtype, first * width), inverse->typed_data() + first);
  });
  return ffi::Error::Success();
}

ffi::Error rms_norm_gradient_call(ffi::ThreadPool pool, ffi::AnyBuffer x, RowFloats weight, RowFloats inverse,
                                  ffi::AnyBuffer dy, RowResult dx) {
  const int64_t width = elements_of(weight);
  if (!is_known(x.element_type()) || width == 0 || !alike(x, dy) || !alike(x, *dx) ||
      elements_of(inverse) * width != elements_of(x))
    return wrong_operands("cpu_rms_norm");
  const DType dtype = dtype_of(x.element_type());
  each_range(pool, elements_of(x) / width, width, [&](int64_t first, int64_t count) {
    row_ops().norm_gradient({dtype, count, width, at(x.untyped_data(), dtype, first * width), weight.typed_data()},
                            inverse.typed_data() + first, at(dy.untyped_data(), dtype, first * width),
                            at(dx->untyped_data(), dtype, first * width));
  });
  return ffi::Error::Success();
}

ffi::Error cross_entropy_call(ffi::ThreadPool pool, RowFloats logits, RowInts targets, RowFloats weights,
                              ffi::Result<RowFloats> losses, ffi::Result<RowFloats> hits, RowResult slope) {
  const int64_t rows = elements_of(targets);
  if (rows == 0) return ffi::Error::Success();
  const int64_t width = elements_of(logits) / rows;
  if (!is_known(slope->element_type()) || elements_of(*slope) != rows * width || elements_of(logits) != rows * width ||
      elements_of(weights) != rows || elements_of(*losses) != rows || elements_of(*hits) != rows)
    return wrong_operands("cpu_cross_entropy");
  const DType dtype = dtype_of(slope->element_type());
  each_range(pool, rows, width, [&](int64_t first, int64_t count) {
    constexpr int64_t kVector = 16;
    row_ops().cross_entropy({count, width, logits.typed_data() + first * width, targets.typed_data() + first,
                             weights.typed_data() + first, dtype},
                            losses->typed_data() + first, hits->typed_data() + first,
                            at(slope->untyped_data(), dtype, first * width), &thread_words(width + kVector)->f32);
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(gated_handler, gated_call,
                              ffi::Ffi::Bind()
                                  .Attr<bool>("silu")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gated_gradient_handler, gated_gradient_call,
                              ffi::Ffi::Bind()
                                  .Attr<bool>("silu")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(rms_norm_handler, rms_norm_call,
                              ffi::Ffi::Bind()
                                  .Attr<float>("eps")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<RowFloats>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<RowFloats>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(rms_norm_gradient_handler, rms_norm_gradient_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<RowFloats>()
                                  .Arg<RowFloats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(cross_entropy_handler, cross_entropy_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<RowFloats>()
                                  .Arg<RowInts>()
                                  .Arg<RowFloats>()
                                  .Ret<RowFloats>()
                                  .Ret<RowFloats>()
                                  .Ret<ffi::AnyBuffer>());

}  // namespace

void register_gated(const Plugin& plugin) {
  register_kernel<gated_handler>(plugin, kGatedTarget);
  register_kernel<gated_gradient_handler>(plugin, kGatedGradientTarget);
}
void register_rms_norm(const Plugin& plugin) {
  register_kernel<rms_norm_handler>(plugin, kRmsNormTarget);
  register_kernel<rms_norm_gradient_handler>(plugin, kRmsNormGradientTarget);
}
void register_cross_entropy(const Plugin& plugin) {
  register_kernel<cross_entropy_handler>(plugin, kCrossEntropyTarget);
}

}  // namespace fettle::cpu
