#include "kernels/cpu/weights/adamw_kernel.h"

#include <algorithm>

#include "graph/ops.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/each_range.h"
#include "kernels/cpu/ffi_operands.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {
namespace {

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;
using FloatResult = ffi::Result<Floats>;
using Scalar = ffi::Buffer<ffi::F32, 0>;
using Flag = ffi::Buffer<ffi::PRED, 0>;

// Places of the composite's inputs. The scalars of the rule follow, in the order of their names.
constexpr size_t kWeight = 0, kGradient = 1, kM = 2, kV = 3, kDivisor = 4;

// Copies the old array to the new one, unless they are the same memory.
void keep(const Floats& now, FloatResult& next) {
  if (now.typed_data() != next->typed_data()) std::copy_n(now.typed_data(), now.element_count(), next->typed_data());
}

ffi::Error adamw_call(float beta1, float rest1, float beta2, float rest2, float epsilon, float decay, float rate_factor,
                      ffi::ThreadPool pool, Floats weight, Floats gradient, Floats m, Floats v, Scalar divisor,
                      Scalar factor, Flag finite, Scalar correction1, Scalar correction2_sqrt, Scalar learning_rate,
                      FloatResult new_weight, FloatResult new_m, FloatResult new_v) {
  const int64_t elements = elements_of(weight);
  for (const int64_t other : {elements_of(gradient), elements_of(m), elements_of(v), elements_of(*new_weight),
                              elements_of(*new_m), elements_of(*new_v)})
    if (other != elements) return wrong_operands("cpu_adamw");
  if (!*finite.typed_data()) {
    keep(weight, new_weight);
    keep(m, new_m);
    keep(v, new_v);
    return ffi::Error::Success();
  }
  const float rate = *learning_rate.typed_data() * rate_factor;
  const AdamwStep step{.divisor = *divisor.typed_data(),
                       .factor = *factor.typed_data(),
                       .beta1 = beta1,
                       .rest1 = rest1,
                       .beta2 = beta2,
                       .rest2 = rest2,
                       .epsilon = epsilon,
                       .correction2_sqrt = *correction2_sqrt.typed_data(),
                       .kept = 1.0F - rate * decay,
                       .rate = rate / *correction1.typed_data()};
  const auto adamw = block_ops(DType::kF32).rows.adamw;
  each_range(pool, elements, 1, [&](int64_t at, int64_t count) {
    adamw(step, count, gradient.typed_data() + at, weight.typed_data() + at, m.typed_data() + at, v.typed_data() + at,
          new_weight->typed_data() + at, new_m->typed_data() + at, new_v->typed_data() + at);
  });
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(adamw_handler, adamw_call,
                              ffi::Ffi::Bind()
                                  .Attr<float>("beta1")
                                  .Attr<float>("rest1")
                                  .Attr<float>("beta2")
                                  .Attr<float>("rest2")
                                  .Attr<float>("epsilon")
                                  .Attr<float>("decay")
                                  .Attr<float>("rate")
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Scalar>()
                                  .Arg<Scalar>()
                                  .Arg<Flag>()
                                  .Arg<Scalar>()
                                  .Arg<Scalar>()
                                  .Arg<Scalar>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());

float narrow(double x) {
  return static_cast<float>(x);
}

}  // namespace

bool adamw_pays(const CompositeSite& site) {
  constexpr int64_t kFewest = 4096;
  return site.inputs[kWeight].elements() >= kFewest && has_fast_ops(DType::kF32);
}

std::optional<Kernel> adamw_kernel(const CompositeSite& site) {
  auto number = [&](const char* name) { return std::get<double>(site.attributes.at(name)); };
  if (std::get<std::string>(site.attributes.at("rule")) != "adamw_torch") return std::nullopt;
  const Shape weight = site.inputs[kWeight];
  const Partition split = site.partitions[kWeight];
  for (const size_t i : {kWeight, kGradient, kM, kV})
    if (site.inputs[i] != weight || weight.dtype != DType::kF32 || site.partitions[i] != split) return std::nullopt;
  const double beta1 = number("beta1"), beta2 = number("beta2");
  CustomCall call{.kernel = kAdamwKernel,
                  .target = kAdamwTarget,
                  .attributes = {{"beta1", narrow(beta1)},
                                 {"rest1", narrow(1 - beta1)},
                                 {"beta2", narrow(beta2)},
                                 {"rest2", narrow(1 - beta2)},
                                 {"epsilon", narrow(number("epsilon"))},
                                 {"decay", narrow(number("weight_decay"))},
                                 {"rate", narrow(number("rate"))}},
                  .results = {weight, weight, weight},
                  .in = {split, split, split, split, {}, {}, {}, {}, {}, {}},
                  .out = {split, split, split},
                  .aliases = {{0, kWeight}, {1, kM}, {2, kV}},
                  .cost = {.flops = 18 * weight.elements(), .bytes = 7 * weight.bytes()},
                  .elementwise = true};
  return [call = std::move(call),
          clipped = std::get<bool>(site.attributes.at("clipped"))](std::vector<Tensor> inputs) -> std::vector<Tensor> {
    if (!clipped) inputs.insert(inputs.begin() + kDivisor + 1, constant(1, DType::kF32));
    return custom_call(call, inputs);
  };
}

void register_adamw(const Plugin& plugin) {
  register_ffi_handler<adamw_handler>(plugin, kAdamwTarget);
}

}  // namespace fettle::cpu
