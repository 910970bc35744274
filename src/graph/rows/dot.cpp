// Defines the op table's rows for matrix products.
#include <algorithm>
#include <array>
#include <functional>

#include "graph/float8.h"
#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

std::string dot_text(NodeText& n, Printer& printer) {
  const DotDims& d = n.node.get<DotProduct>().dims;
  std::string text = fmt::format("stablehlo.dot_general {}, {},", n.operands[0], n.operands[1]);
  if (!d.lhs_batching.empty())
    text += fmt::format(" batching_dims = {} x {},", to_string(d.lhs_batching), to_string(d.rhs_batching));
  text += fmt::format(" contracting_dims = {} x {}", to_string(d.lhs_contracting), to_string(d.rhs_contracting));
  if (n.node.operands[0].dtype() == DType::kF32 && !printer.options().tf32) text += ", precision = [HIGHEST, HIGHEST]";
  return text + " : " + n.signature();
}

std::vector<Shape> dot_shape(Shapes o, const Attributes& a) {
  check_count(o, 2, "dot_general_c1");
  const auto& [d, result] = as<DotProduct>(a);
  check(d.lhs_batching.size() == d.rhs_batching.size(), "dot_general_c1", "lhs has {} batching dims, but rhs has {}",
        d.lhs_batching.size(), d.rhs_batching.size());
  check(d.lhs_contracting.size() == d.rhs_contracting.size(), "dot_general_c2",
        "lhs has {} contracting dims, but rhs has {}", d.lhs_contracting.size(), d.rhs_contracting.size());
  auto joined = [](Dims x, const Dims& y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
  };
  const Dims lhs_used = joined(d.lhs_batching, d.lhs_contracting), rhs_used = joined(d.rhs_batching, d.rhs_contracting);
  check(in_range_and_unique(lhs_used, o[0].rank()), "dot_general_c3_c5",
        "the lhs dims {} repeat a dim or are not all in {}", to_string(lhs_used), o[0].to_string());
  check(in_range_and_unique(rhs_used, o[1].rank()), "dot_general_c4_c7",
        "the rhs dims {} repeat a dim or are not all in {}", to_string(rhs_used), o[1].to_string());
  const bool float8 = is_float8(o[0].dtype) && is_float8(o[1].dtype);  // e4m3 and e5m2 may be mixed
  check(o[0].dtype == o[1].dtype || float8, "dot_general_c13", "cannot multiply {} by {}: the dtypes differ",
        o[0].to_string(), o[1].to_string());
  Shape out{result, {}};
  for (size_t i = 0; i < d.lhs_batching.size(); ++i) {
    check(o[0].dims[d.lhs_batching[i]] == o[1].dims[d.rhs_batching[i]], "dot_general_c9",
          "cannot multiply {} by {}: the batching dims differ in size", o[0].to_string(), o[1].to_string());
    out.dims.push_back(o[0].dims[d.lhs_batching[i]]);
  }
  for (size_t i = 0; i < d.lhs_contracting.size(); ++i)
    check(o[0].dims[d.lhs_contracting[i]] == o[1].dims[d.rhs_contracting[i]], "dot_general_c10",
          "cannot multiply {} by {}: the contracting dims {} and {} differ in size", o[0].to_string(), o[1].to_string(),
          to_string(d.lhs_contracting), to_string(d.rhs_contracting));
  auto append_free = [&out](const Shape& shape, const Dims& used) {
    for (int64_t i = 0; i < shape.rank(); ++i)
      if (std::find(used.begin(), used.end(), i) == used.end()) out.dims.push_back(shape.dims[i]);
  };
  append_free(o[0], lhs_used);
  append_free(o[1], rhs_used);
  return {out};
}

Dims free_dims(int64_t rank, const Dims& batching, const Dims& contracting) {
  Dims out;
  for (int64_t i = 0; i < rank; ++i)
    if (std::find(batching.begin(), batching.end(), i) == batching.end() &&
        std::find(contracting.begin(), contracting.end(), i) == contracting.end())
      out.push_back(i);
  return out;
}

// Returns the cotangent of `operand`, a factor of the product. `own_*` are the batching and contracting dims of the
// operand, `other_*` are those of the factor `other`. The cotangent of the product has the dims [batch, free dims of
// lhs, free dims of rhs]. `times` multiplies this cotangent by `other` and contracts the free dims of `other`. A
// permutation then restores the operand's order of dims.
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

  // The dims of `grad`: batching dims, free dims of `operand`, then the contracting dims in the order that they have in
  // `other`.
  Dims rest = other_contracting;
  std::sort(rest.begin(), rest.end());
  Dims permutation(operand.rank());
  for (int64_t i = 0; i < batch; ++i) permutation[own_batching[i]] = i;
  for (size_t i = 0; i < own_free.size(); ++i) permutation[own_free[i]] = batch + static_cast<int64_t>(i);
  for (size_t i = 0; i < own_contracting.size(); ++i) {
    const auto at = std::find(rest.begin(), rest.end(), other_contracting[i]) - rest.begin();
    permutation[own_contracting[i]] = batch + static_cast<int64_t>(own_free.size()) + at;
  }
  return transpose(grad, permutation);
}

// Returns the cotangents of the factors x and y. The cotangent of an unwanted factor is null. `times_x` multiplies the
// cotangent of the product by x, `times_y` by y.
Tensors dot_grads(const DotDims& d, const Tensor& x, const Tensor& y, bool wants_x, bool wants_y,
                  const std::function<Tensor(const DotDims&)>& times_x,
                  const std::function<Tensor(const DotDims&)>& times_y) {
  return {
      wants_x
          ? dot_operand_grad(x, y, d.lhs_batching, d.lhs_contracting, d.rhs_batching, d.rhs_contracting, true, times_y)
          : Tensor{},
      wants_y
          ? dot_operand_grad(y, x, d.rhs_batching, d.rhs_contracting, d.lhs_batching, d.lhs_contracting, false, times_x)
          : Tensor{}};
}

Tensors dot_vjp(const VjpArgs& a) {
  auto times = [&](const Tensor& other, DType result) {
    return
        [&a, other, result](const DotDims& d) { return dot_general(convert(ct(a), other.dtype()), other, d, result); };
  };
  return dot_grads(a.get<DotProduct>().dims, x(a), y(a), a.active[0], a.active[1], times(x(a), y(a).dtype()),
                   times(y(a), x(a).dtype()));
}

double dot_flops(const Node& node) {
  int64_t contracted = 1;
  const Dims& lhs = node.operands[0].dims();
  for (const int64_t d : node.get<DotProduct>().dims.lhs_contracting) contracted *= lhs[d];
  return 2.0 * static_cast<double>(node.results[0].elements()) * static_cast<double>(contracted);
}

// Operands of float8_dot: the product that was computed, and its two factors. Only the gradient reads the factors.
std::vector<Shape> float8_shape(Shapes o, const Attributes& a) {
  check_count(o, 3, "float8_dot_c1");
  const std::vector<Shape> out = dot_shape(o.subspan(1), DotProduct{as<Float8Product>(a).dims, o[1].dtype});
  check(out[0] == o[0], "float8_dot_c2", "the product is {}, wanted {}", o[0].to_string(), out[0].to_string());
  return out;
}

Tensors float8_vjp(const VjpArgs& a) {
  const Tensor &left = a.operands[1], &right = a.operands[2];
  const auto& product = a.get<Float8Product>();
  const ScaledFloat8 gradient = to_float8(ct(a), product.types.gradient);
  auto times = [&](const Tensor& other, DType result) {
    return [&gradient, other, forward = product.types.forward, result](const DotDims& d) {
      return scaled_dot(gradient, to_float8(other, forward), d, result);
    };
  };
  Tensors grads = dot_grads(product.dims, left, right, a.active[1], a.active[2], times(left, right.dtype()),
                            times(right, left.dtype()));
  grads.insert(grads.begin(), Tensor{});
  return grads;
}

constexpr std::array kDotRows{
    OpRow{.op = Op::kDotGeneral,
          .name = "dot_general",
          .spell = dot_text,
          .shape = dot_shape,
          .vjp = dot_vjp,
          .flops = dot_flops,
          .needs = all_operands,
          .saved = Saved::kAsProduct},
    OpRow{.op = Op::kFloat8Dot,
          .name = "float8_dot",
          .spell = nullptr,
          .shape = float8_shape,
          .vjp = float8_vjp,
          .flops = nullptr,
          .needs = first_operand,
          .saved = Saved::kAsValue},
};

}  // namespace

std::span<const OpRow> dot() {
  return kDotRows;
}

}  // namespace fettle::rows
