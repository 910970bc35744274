// The FFI handlers of cpu_attention and cpu_cached_attention.
#include <algorithm>

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/attention/cached_attention_kernel.h"
#include "kernels/cpu/attention/next_attention.h"
#include "kernels/cpu/ffi_operands.h"
#include "kernels/cpu/plugin_threads.h"
#include "kernels/cpu/sliced_operands.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Buffer<ffi::S32>;
using Floats = ffi::Buffer<ffi::F32>;

// Keys or values, [B, S, K, H].
struct Keys {
  const void* data;
  int64_t length, heads;
};

std::optional<Keys> keys_of(ffi::AnyBuffer all) {
  const auto dims = all.dimensions();
  if (dims.size() != 4) return std::nullopt;
  return Keys{all.untyped_data(), dims[1], dims[2]};
}

// Returns slice `number` of [layers, B, S, K, H]. A number that is out of range is clamped, as in dynamic_slice.
std::optional<Keys> keys_of(ffi::AnyBuffer stack, int64_t number) {
  const auto dims = stack.dimensions();
  if (dims.size() != 5) return std::nullopt;
  const auto bytes = static_cast<int64_t>(stack.size_bytes()) / dims[0];
  return Keys{static_cast<const char*>(stack.untyped_data()) + std::clamp<int64_t>(number, 0, dims[0] - 1) * bytes,
              dims[2], dims[3]};
}

// Returns null if all slopes are 0.
const float* slopes_of(Floats slopes, int64_t heads) {
  const float* slope = slopes.typed_data();
  return std::any_of(slope, slope + heads, [](float x) { return x != 0; }) ? slope : nullptr;
}

// `first` is the position of the first query among the keys.
std::optional<AttentionProblem> problem_of(float scale, float softcap, bool causal, ffi::AnyBuffer q,
                                           const std::optional<Keys>& k, const std::optional<Keys>& v, Ints segments,
                                           Ints window, Floats slopes, int64_t first = 0) {
  const auto q_dims = q.dimensions();
  if (q_dims.size() != 4 || !k || !v || !is_known(q.element_type())) return std::nullopt;
  if (first < 0 || first + q_dims[1] > k->length) return std::nullopt;
  AttentionProblem p{.rows = q_dims[0],
                     .length = q_dims[1],
                     .keys = k->length,
                     .heads = q_dims[2],
                     .key_heads = k->heads,
                     .width = q_dims[3],
                     .first = first,
                     .dtype = dtype_of(q.element_type()),
                     .causal = causal,
                     .scale = scale,
                     .softcap = softcap,
                     .segments = segments.typed_data(),
                     .q = q.untyped_data(),
                     .k = k->data,
                     .v = v->data};
  const int32_t keys = *window.typed_data();
  if (causal && keys > 0 && keys < p.filled()) p.window = keys;
  p.slopes = slopes_of(slopes, p.heads);
  return p;
}

ffi::Error forward(float scale, float softcap, bool causal, ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                   ffi::AnyBuffer v, Ints segments, Ints window, Floats slopes, ffi::Result<ffi::AnyBuffer> o,
                   ffi::Result<Floats> log_sum, ffi::Result<ffi::AnyBuffer> workspace) {
  const auto problem = problem_of(scale, softcap, causal, q, keys_of(k), keys_of(v), segments, window, slopes);
  if (!problem || problem->keys != problem->length) return wrong_operands("cpu_attention");
  attention(*problem, o->untyped_data(), log_sum->typed_data(), workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

ffi::Error backward(float scale, float softcap, bool causal, ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                    ffi::AnyBuffer v, Ints segments, Ints window, Floats slopes, ffi::AnyBuffer o, Floats log_sum,
                    ffi::AnyBuffer d_o, ffi::Result<ffi::AnyBuffer> dq, ffi::Result<ffi::AnyBuffer> dk,
                    ffi::Result<ffi::AnyBuffer> dv, ffi::Result<ffi::AnyBuffer> workspace) {
  const auto problem = problem_of(scale, softcap, causal, q, keys_of(k), keys_of(v), segments, window, slopes);
  if (!problem || problem->keys != problem->length) return wrong_operands("cpu_attention");
  attention_backward(*problem, o.untyped_data(), log_sum.typed_data(), d_o.untyped_data(), dq->untyped_data(),
                     dk->untyped_data(), dv->untyped_data(), workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

ffi::Error cached(float scale, float softcap, bool causal, ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                  ffi::AnyBuffer v, Ints segments, Ints window, Floats slopes, Ints first, Ints layer,
                  ffi::Result<ffi::AnyBuffer> o, ffi::Result<ffi::AnyBuffer> workspace) {
  const int64_t number = *layer.typed_data();
  const auto problem = problem_of(scale, softcap, causal, q, keys_of(k, number), keys_of(v, number), segments, window,
                                  slopes, *first.typed_data());
  if (!problem) return wrong_operands("cpu_cached_attention");
  attention(*problem, o->untyped_data(), nullptr, workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

ffi::Error next(float scale, float softcap, ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                Ints window, Ints chunk, Floats slopes, Ints filled, Ints layer, ffi::Result<ffi::AnyBuffer> o,
                ffi::Result<ffi::AnyBuffer> workspace) {
  const int64_t number = *layer.typed_data();
  const auto keys = keys_of(k, number), values = keys_of(v, number);
  const auto dims = q.dimensions();
  if (dims.size() != 4 || dims[1] != 1 || !keys || !values || !is_known(q.element_type()))
    return wrong_operands("cpu_cached_attention");
  NextAttention p{.rows = dims[0],
                  .keys = keys->length,
                  .heads = dims[2],
                  .key_heads = keys->heads,
                  .width = dims[3],
                  .dtype = dtype_of(q.element_type()),
                  .window = *window.typed_data(),
                  .chunk = *chunk.typed_data(),
                  .scale = scale,
                  .softcap = softcap,
                  .filled = filled.typed_data(),
                  .q = q.untyped_data(),
                  .k = keys->data,
                  .v = values->data};
  p.slopes = slopes_of(slopes, p.heads);
  attend_next(p, o->untyped_data(), workspace->untyped_data(), plugin_threads(pool));
  return ffi::Error::Success();
}

auto shared_binding() {
  return ffi::Ffi::Bind()
      .Attr<float>("scale")
      .Attr<float>("softcap")
      .Attr<bool>("causal")
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<Ints>()
      .Arg<Ints>()
      .Arg<Floats>();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(forward_handler, forward,
                              shared_binding().Ret<ffi::AnyBuffer>().Ret<Floats>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(backward_handler, backward,
                              shared_binding()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<Floats>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(cached_handler, cached,
                              shared_binding().Arg<Ints>().Arg<Ints>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(next_handler, next,
                              ffi::Ffi::Bind()
                                  .Attr<float>("scale")
                                  .Attr<float>("softcap")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<Ints>()
                                  .Arg<Ints>()
                                  .Arg<Floats>()
                                  .Arg<Ints>()
                                  .Arg<Ints>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

}  // namespace

void register_attention(const Plugin& plugin) {
  register_kernel<forward_handler>(plugin, kAttentionTarget);
  register_kernel<backward_handler>(plugin, kAttentionGradientTarget);
}

void register_cached_attention(const Plugin& plugin) {
  register_ffi_handler<cached_handler>(plugin, kCachedAttentionTarget);
  register_ffi_handler<next_handler>(plugin, kNextAttentionTarget);
}

}  // namespace fettle::cpu
