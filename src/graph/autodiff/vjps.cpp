#include "graph/autodiff/vjps.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "graph/custom_call.h"
#include "graph/float8.h"
#include "graph/ops.h"

namespace fettle::vjps {
namespace {

const Tensor& ct(const VjpArgs& a) {
  return a.cotangents[0];
}
const Tensor& x(const VjpArgs& a) {
  return a.operands[0];
}
const Tensor& y(const VjpArgs& a) {
  return a.operands[1];
}
const Tensor& out(const VjpArgs& a) {
  return a.results[0];
}

Tensor only(const Tensor& pred, const Tensor& value) {
  return fettle::select(pred, value, zeros_like(value));
}

Tensors with_starts(Tensors grads, const VjpArgs& a) {
  grads.resize(a.operands.size());
  return grads;
}

}  // namespace

Tensors abs(const VjpArgs& a) {
  return {ct(a) * sign(x(a))};
}
Tensors cosine(const VjpArgs& a) {
  return {-(ct(a) * fettle::sine(x(a)))};
}
Tensors erf(const VjpArgs& a) {
  return {ct(a) * fettle::exp(-(x(a) * x(a))) * (2 / std::sqrt(std::numbers::pi))};
}
Tensors exponential(const VjpArgs& a) {
  return {ct(a) * out(a)};
}
Tensors log(const VjpArgs& a) {
  return {ct(a) / x(a)};
}
Tensors logistic(const VjpArgs& a) {
  return {ct(a) * (out(a) * (1.0 - out(a)))};
}
Tensors negate(const VjpArgs& a) {
  return {-ct(a)};
}
Tensors rsqrt(const VjpArgs& a) {
  return {ct(a) * (out(a) / x(a)) * -0.5};
}
Tensors sine(const VjpArgs& a) {
  return {ct(a) * fettle::cosine(x(a))};
}
Tensors sqrt(const VjpArgs& a) {
  return {ct(a) / out(a) * 0.5};
}
Tensors tanh(const VjpArgs& a) {
  return {ct(a) * (1.0 - out(a) * out(a))};
}
Tensors add(const VjpArgs& a) {
  return {ct(a), ct(a)};
}
Tensors subtract(const VjpArgs& a) {
  return {ct(a), -ct(a)};
}
Tensors multiply(const VjpArgs& a) {
  return {a.active[0] ? ct(a) * y(a) : Tensor{}, a.active[1] ? ct(a) * x(a) : Tensor{}};
}
Tensors divide(const VjpArgs& a) {
  return {a.active[0] ? ct(a) / y(a) : Tensor{}, a.active[1] ? -(ct(a) * (out(a) / y(a))) : Tensor{}};
}
// At a tie the whole cotangent goes to the first operand.
Tensors maximum(const VjpArgs& a) {
  const Tensor first = fettle::compare(x(a), "GE", y(a));
  return {only(first, ct(a)), only(logical_not(first), ct(a))};
}
Tensors minimum(const VjpArgs& a) {
  const Tensor first = fettle::compare(x(a), "LE", y(a));
  return {only(first, ct(a)), only(logical_not(first), ct(a))};
}
Tensors power(const VjpArgs& a) {
  return {a.active[0] ? ct(a) * y(a) * fettle::power(x(a), y(a) - 1.0) : Tensor{},
          a.active[1] ? ct(a) * out(a) * fettle::log(x(a)) : Tensor{}};
}
Tensors select(const VjpArgs& a) {
  return {Tensor{}, only(x(a), ct(a)), only(logical_not(x(a)), ct(a))};
}
Tensors convert(const VjpArgs& a) {
  return {is_float(x(a).dtype()) ? fettle::convert(ct(a), x(a).dtype()) : Tensor{}};
}

Tensors broadcast_in_dim(const VjpArgs& a) {
  const Dims& dims = a.attributes().dims;
  Dims summed;
  for (int64_t i = 0; i < ct(a).rank(); ++i) {
    const auto at = std::find(dims.begin(), dims.end(), i);
    if (at == dims.end() || (x(a).dims()[at - dims.begin()] == 1 && ct(a).dims()[i] != 1)) summed.push_back(i);
  }
  Tensor grad = summed.empty() ? ct(a) : reduce_sum(ct(a), summed);
  // What is left is in result order; the operand's order differs only when dims are not increasing.
  Dims kept_dims, permutation;
  for (int64_t d : dims)
    if (std::find(summed.begin(), summed.end(), d) == summed.end()) kept_dims.push_back(d);
  Dims sorted = kept_dims;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t d : kept_dims) permutation.push_back(std::find(sorted.begin(), sorted.end(), d) - sorted.begin());
  return {fettle::reshape(fettle::transpose(grad, permutation), x(a).dims())};
}

Tensors concatenate(const VjpArgs& a) {
  const int64_t dim = a.attributes().dims[0];
  Tensors grads;
  int64_t start = 0;
  for (const Tensor& operand : a.operands) {
    grads.push_back(fettle::slice(ct(a), dim, start, start + operand.dims()[dim]));
    start += operand.dims()[dim];
  }
  return grads;
}

Tensors dynamic_slice(const VjpArgs& a) {
  const Tensors starts(a.operands.begin() + 1, a.operands.end());
  return with_starts({fettle::dynamic_update_slice(zeros_like(x(a)), ct(a), starts)}, a);
}

Tensors dynamic_update_slice(const VjpArgs& a) {
  const Tensors starts(a.operands.begin() + 2, a.operands.end());
  return with_starts({fettle::dynamic_update_slice(ct(a), zeros_like(y(a)), starts),
                      fettle::dynamic_slice(ct(a), starts, y(a).dims())},
                     a);
}

Tensors pad(const VjpArgs& a) {
  const Attributes& at = a.attributes();
  Tensor grad = ct(a);
  for (int64_t i = 0; i < grad.rank(); ++i) {
    internal_check(at.low[i] >= 0 && at.high[i] >= 0, "[pad] the VJP of negative padding is not defined here");
    grad = fettle::slice(grad, i, at.low[i], grad.dims()[i] - at.high[i], at.strides[i] + 1);
  }
  return {grad, Tensor{}};
}

Tensors reshape(const VjpArgs& a) {
  return {fettle::reshape(ct(a), x(a).dims())};
}

Tensors slice(const VjpArgs& a) {
  const Attributes& at = a.attributes();
  Attributes padding{.low = at.low, .high = {}, .strides = {}};
  for (int64_t i = 0; i < x(a).rank(); ++i) {
    const int64_t n = ct(a).dims()[i], spread = n == 0 ? 0 : (n - 1) * at.strides[i] + 1;
    padding.high.push_back(x(a).dims()[i] - at.low[i] - spread);
    padding.strides.push_back(at.strides[i] - 1);
  }
  return {make_node(Op::kPad, {ct(a), constant(0, ct(a).dtype())}, padding)};
}

Tensors transpose(const VjpArgs& a) {
  const Dims& permutation = a.attributes().dims;
  Dims inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<int64_t>(i);
  return {fettle::transpose(ct(a), inverse)};
}

namespace {

Dims free_dims(int64_t rank, const Dims& batching, const Dims& contracting) {
  Dims out;
  for (int64_t i = 0; i < rank; ++i)
    if (std::find(batching.begin(), batching.end(), i) == batching.end() &&
        std::find(contracting.begin(), contracting.end(), i) == contracting.end())
      out.push_back(i);
  return out;
}

// The cotangent of one operand: ct [batch, own free, other free] contracted with `other` over the other's free dims
// gives [batch, own free, other's contracting dims in order]; the permutation puts them where the operand has them.
// `times` takes that product.
Tensor dot_operand_grad(const Tensor& operand, const Tensor& other, const Dims& own_batching,
                        const Dims& own_contracting, const Dims& other_batching, const Dims& other_contracting,
                        bool operand_is_lhs, const std::function<Tensor(const DotDims&)>& times) {
  const Dims own_free = free_dims(operand.rank(), own_batching, own_contracting);
  const Dims other_free = free_dims(other.rank(), other_batching, other_contracting);
  const int64_t batch = static_cast<int64_t>(own_batching.size());
  DotDims d;
  for (int64_t i = 0; i < batch; ++i) d.lhs_batching.push_back(i);
  d.rhs_batching = other_batching;
  const int64_t first = batch + (operand_is_lhs ? static_cast<int64_t>(own_free.size()) : 0);
  for (size_t i = 0; i < other_free.size(); ++i) d.lhs_contracting.push_back(first + static_cast<int64_t>(i));
  d.rhs_contracting = other_free;
  const Tensor grad = times(d);

  // grad's dims: batching, own free, then the other's remaining dims (its contracting ones) in the other's dim order.
  Dims rest = other_contracting;
  std::sort(rest.begin(), rest.end());
  Dims permutation(operand.rank());
  for (int64_t i = 0; i < batch; ++i) permutation[own_batching[i]] = i;
  for (size_t i = 0; i < own_free.size(); ++i) permutation[own_free[i]] = batch + static_cast<int64_t>(i);
  for (size_t i = 0; i < own_contracting.size(); ++i) {
    const auto at = std::find(rest.begin(), rest.end(), other_contracting[i]) - rest.begin();
    permutation[own_contracting[i]] = batch + static_cast<int64_t>(own_free.size()) + at;
  }
  return fettle::transpose(grad, permutation);
}

// Cotangents of x and y of a product of both; those that are active.
Tensors dot_grads(const DotDims& d, const Tensor& x, const Tensor& y, bool of_x, bool of_y,
                  const std::function<Tensor(const DotDims&)>& times_x,
                  const std::function<Tensor(const DotDims&)>& times_y) {
  return {
      of_x ? dot_operand_grad(x, y, d.lhs_batching, d.lhs_contracting, d.rhs_batching, d.rhs_contracting, true, times_y)
           : Tensor{},
      of_y
          ? dot_operand_grad(y, x, d.rhs_batching, d.rhs_contracting, d.lhs_batching, d.lhs_contracting, false, times_x)
          : Tensor{}};
}

}  // namespace

Tensors dot_general(const VjpArgs& a) {
  auto times = [&](const Tensor& other, DType result) {
    return [&a, other, result](const DotDims& d) {
      return fettle::dot_general(fettle::convert(ct(a), other.dtype()), other, d, result);
    };
  };
  return dot_grads(a.attributes().dot, x(a), y(a), a.active[0], a.active[1], times(x(a), y(a).dtype()),
                   times(y(a), x(a).dtype()));
}

Tensors float8_dot(const VjpArgs& a) {
  const Tensor &left = a.operands[1], &right = a.operands[2];
  const DType forward = dtype_from_hf(a.attributes().text);
  const ScaledFloat8 gradient = to_float8(ct(a), dtype_from_hf(a.attributes().config));
  auto times = [&](const Tensor& other, DType result) {
    return [&gradient, other, forward, result](const DotDims& d) {
      return scaled_dot(gradient, to_float8(other, forward), d, result);
    };
  };
  Tensors grads = dot_grads(a.attributes().dot, left, right, a.active[1], a.active[2], times(left, right.dtype()),
                            times(right, left.dtype()));
  grads.insert(grads.begin(), Tensor{});
  return grads;
}

Tensors reduce(const VjpArgs& a) {
  const Dims& dims = a.attributes().dims;
  Dims kept = x(a).dims();
  for (int64_t d : dims) kept[d] = 1;
  const Tensor spread = broadcast_to(fettle::reshape(ct(a), kept), x(a).dims());
  if (a.attributes().text == "add") return {spread};
  if (a.attributes().text != "maximum" && a.attributes().text != "minimum") return {Tensor{}};
  // Ties share the cotangent equally.
  const Tensor chosen = fettle::convert(
      fettle::compare(x(a), "EQ", broadcast_to(fettle::reshape(out(a), kept), x(a).dims())), x(a).dtype());
  const Tensor count = broadcast_to(fettle::reshape(reduce_sum(chosen, dims), kept), x(a).dims());
  return {spread * chosen / count};
}

Tensors take(const VjpArgs& a) {
  // scatter skips ids out of range, where gather clamps them.
  const Dims rows(x(a).dims().begin(), x(a).dims().end() - 1);
  const Tensor last = constant(static_cast<double>(rows.back() - 1), DType::kI32);
  const Tensor ids = fettle::minimum(fettle::maximum(y(a), constant(0, DType::kI32)), last);
  return {make_node(Op::kTakeTranspose, {ct(a), ids}, {.high = rows}), Tensor{}};
}

Tensors take_transpose(const VjpArgs& a) {
  const Tensor rows = constant(static_cast<double>(a.attributes().high.back()), DType::kI32);
  const Tensor inside =
      fettle::logical_and(fettle::compare(y(a), "GE", constant(0, DType::kI32)), fettle::compare(y(a), "LT", rows));
  const Tensor taken = fettle::take(ct(a), y(a));
  Tensors out{fettle::select(expand(inside, -1), taken, constant(0, taken.dtype())), Tensor{}};
  if (a.operands.size() > 2) out.push_back(ct(a));
  return out;
}

Tensors custom_call(const VjpArgs& a) {
  const CustomCall& call = *a.attributes().call;
  internal_check(static_cast<bool>(call.gradient), "{} has no gradient: stop_gradient its operands, or give it one",
                 call.kernel.empty() ? call.target : call.kernel);
  return call.gradient(a);
}

Tensors custom_gradient(const VjpArgs& a) {
  const size_t inputs = (a.operands.size() - 1) / 2;
  Tensors grads(a.operands.size());
  for (size_t i = 0; i < inputs; ++i) {
    const Tensor& unit = a.operands[1 + inputs + i];
    // In the cotangent's dtype: a loss scale may be beyond float16.
    grads[1 + i] = fettle::convert(fettle::convert(unit, ct(a).dtype()) * ct(a), a.operands[1 + i].dtype());
  }
  return grads;
}

Tensors optimization_barrier(const VjpArgs& a) {
  return a.cotangents;
}

// A gradient lies where its value lies.
Tensors place(const VjpArgs& a) {
  const Attributes& at = a.attributes();
  const Tensor held = fettle::sharding_constraint(ct(a), at.partition);
  const Memory back = at.memory == Memory::kDevice ? Memory::kHost : Memory::kDevice;
  Tensors out{fettle::place(held, back, at.partition)};
  if (a.operands.size() > 1) {
    Dims all;
    for (int64_t d = 0; d < held.rank(); ++d) all.push_back(d);
    const Tensor exact = fettle::convert(held, DType::kF32);
    out.push_back(fettle::reduce_sum(exact * exact, all));
  }
  return out;
}

Tensors sharding_constraint(const VjpArgs& a) {
  return {fettle::sharding_constraint(ct(a), a.attributes().partition)};
}

}  // namespace fettle::vjps
