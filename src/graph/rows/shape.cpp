// Defines the op table's rows for ops that change a value's shape.
#include <algorithm>
#include <array>

#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

std::string broadcast_text(NodeText& n, Printer&) {
  return fmt::format("{} {}, dims = {} : {}", n.name(), n.operands[0], to_string(n.node.get<Broadcast>().dims),
                     n.signature());
}

std::vector<Shape> broadcast_shape(Shapes o, const Attributes& a) {
  const auto& [result, dims] = as<Broadcast>(a);
  check_count(o, 1, "broadcast_in_dim_c1");
  check(static_cast<int64_t>(dims.size()) == o[0].rank(), "broadcast_in_dim_c2",
        "found {} dims, wanted one for each dim of {}", dims.size(), o[0].to_string());
  check(in_range_and_unique(dims, static_cast<int64_t>(result.size())), "broadcast_in_dim_c3_c4",
        "the dims {} repeat a dim or are not all in the result {}", to_string(dims), to_string(result));
  for (size_t i = 0; i < dims.size(); ++i)
    check(o[0].dims[i] == 1 || o[0].dims[i] == result[dims[i]], "broadcast_in_dim_c5",
          "{} along the dims {} does not broadcast to {}", o[0].to_string(), to_string(dims), to_string(result));
  return {{o[0].dtype, result}};
}

Tensors broadcast_vjp(const VjpArgs& a) {
  const Dims& dims = a.get<Broadcast>().dims;
  Dims summed;
  for (int64_t i = 0; i < ct(a).rank(); ++i) {
    const auto at = std::find(dims.begin(), dims.end(), i);
    if (at == dims.end() || (x(a).dims()[at - dims.begin()] == 1 && ct(a).dims()[i] != 1)) summed.push_back(i);
  }
  const DType dtype = ct(a).dtype();
  Tensor grad = summed.empty() ? ct(a) : convert(reduce_sum(convert(ct(a), sum_dtype(dtype)), summed), dtype);
  // `grad` has the remaining dims in the order of the result. If `dims` is not increasing, the operand has them in
  // another order, so they are transposed.
  Dims kept_dims, permutation;
  for (int64_t d : dims)
    if (std::find(summed.begin(), summed.end(), d) == summed.end()) kept_dims.push_back(d);
  Dims sorted = kept_dims;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t d : kept_dims) permutation.push_back(std::find(sorted.begin(), sorted.end(), d) - sorted.begin());
  return {reshape(transpose(grad, permutation), x(a).dims())};
}

std::string concatenate_text(NodeText& n, Printer&) {
  return fmt::format("{} {}, dim = {} : {}", n.name(), fmt::join(n.operands, ", "), n.node.get<ConcatenateDim>().dim,
                     n.signature());
}

std::vector<Shape> concatenate_shape(Shapes o, const Attributes& a) {
  const int64_t dim = as<ConcatenateDim>(a).dim;
  check(!o.empty(), "concatenate_c3", "found no operands, wanted one or more");
  check(dim >= 0 && dim < o[0].rank(), "concatenate_c4", "there is no dimension {} in {}", dim, o[0].to_string());
  Shape out = o[0];
  for (size_t i = 1; i < o.size(); ++i) {
    Shape like = o[i];
    check(like.rank() == out.rank(), "concatenate_c2", "{} has another rank than {}", like.to_string(),
          out.to_string());
    out.dims[dim] += like.dims[dim];
    like.dims[dim] = out.dims[dim];
    check(like == out, "concatenate_c2", "{} cannot be concatenated with {}", o[i].to_string(), o[0].to_string());
  }
  return {out};
}

Tensors concatenate_vjp(const VjpArgs& a) {
  const int64_t dim = a.get<ConcatenateDim>().dim;
  Tensors grads;
  int64_t start = 0;
  for (const Tensor& operand : a.operands) {
    grads.push_back(slice(ct(a), dim, start, start + operand.dims()[dim]));
    start += operand.dims()[dim];
  }
  return grads;
}

Tensors with_starts(Tensors grads, const VjpArgs& a) {
  grads.resize(a.operands.size());
  return grads;
}

std::string dynamic_slice_text(NodeText& n, Printer&) {
  return fmt::format("{} {}, sizes = {} : {}", n.name(), fmt::join(n.operands, ", "),
                     to_string(n.node.get<ResultDims>().dims), n.signature());
}

std::vector<Shape> dynamic_slice_shape(Shapes o, const Attributes& a) {
  const Dims& sizes = as<ResultDims>(a).dims;
  check(!o.empty() && static_cast<int64_t>(o.size()) == o[0].rank() + 1, "dynamic_slice_c2",
        "found {} start indices, wanted one for each dim", o.empty() ? 0 : o.size() - 1);
  check(static_cast<int64_t>(sizes.size()) == o[0].rank(), "dynamic_slice_c2",
        "found sizes {}, wanted one for each dim of {}", to_string(sizes), o[0].to_string());
  for (size_t i = 1; i < o.size(); ++i)
    check(o[i] == Shape{DType::kI32, {}}, "dynamic_slice_c3", "start index {} is {}, wanted an i32 scalar", i - 1,
          o[i].to_string());
  for (size_t i = 0; i < sizes.size(); ++i)
    check(sizes[i] >= 0 && sizes[i] <= o[0].dims[i], "dynamic_slice_c4", "sizes {} are negative or larger than {}",
          to_string(sizes), o[0].to_string());
  return {{o[0].dtype, sizes}};
}

Tensors dynamic_slice_vjp(const VjpArgs& a) {
  const Tensors starts(a.operands.begin() + 1, a.operands.end());
  return with_starts({dynamic_update_slice(zeros_like(x(a)), ct(a), starts)}, a);
}

std::vector<Shape> update_shape(Shapes o, const Attributes&) {
  check(o.size() >= 2 && static_cast<int64_t>(o.size()) == o[0].rank() + 2, "dynamic_update_slice_c4",
        "found {} operands to update {}, wanted the array, the update and one start index for each dim", o.size(),
        o.empty() ? "nothing" : o[0].to_string());
  check(o[0].dtype == o[1].dtype, "dynamic_update_slice_c2", "the update {} has another dtype than {}",
        o[1].to_string(), o[0].to_string());
  check(o[0].rank() == o[1].rank(), "dynamic_update_slice_c3", "the update {} has another rank than {}",
        o[1].to_string(), o[0].to_string());
  for (size_t i = 2; i < o.size(); ++i)
    check(o[i] == Shape{DType::kI32, {}}, "dynamic_update_slice_c5", "start index {} is {}, wanted an i32 scalar",
          i - 2, o[i].to_string());
  for (int64_t i = 0; i < o[0].rank(); ++i)
    check(o[1].dims[i] <= o[0].dims[i], "dynamic_update_slice_c6", "the update {} is larger than {}", o[1].to_string(),
          o[0].to_string());
  return {o[0]};
}

Tensors update_vjp(const VjpArgs& a) {
  const Tensors starts(a.operands.begin() + 2, a.operands.end());
  return with_starts({dynamic_update_slice(ct(a), zeros_like(y(a)), starts), dynamic_slice(ct(a), starts, y(a).dims())},
                     a);
}

std::string pad_text(NodeText& n, Printer&) {
  const auto& [low, high, interior] = n.node.get<Padding>();
  return fmt::format("{} {}, {}, low = {}, high = {}, interior = {} : {}", n.name(), n.operands[0], n.operands[1],
                     to_string(low), to_string(high), to_string(interior), n.signature());
}

std::vector<Shape> pad_shape(Shapes o, const Attributes& a) {
  const auto& [low, high, interior] = as<Padding>(a);
  check_count(o, 2, "pad_c1");
  check(o[1] == Shape{o[0].dtype, {}}, "pad_c1", "the padding value {} is not a scalar of the dtype of {}",
        o[1].to_string(), o[0].to_string());
  const size_t rank = o[0].dims.size();
  check(low.size() == rank && high.size() == rank && interior.size() == rank, "pad_c2",
        "low is {}, wanted one entry for each dim of {} in low, in high and in interior", to_string(low),
        o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < rank; ++i) {
    check(interior[i] >= 0, "pad_c3", "interior {} has a negative entry", to_string(interior));
    out.dims[i] = o[0].dims[i] + low[i] + high[i] + std::max<int64_t>(o[0].dims[i] - 1, 0) * interior[i];
    check(out.dims[i] >= 0, "pad_c4", "low {} and high {} remove more than {} has", to_string(low), to_string(high),
          o[0].to_string());
  }
  return {out};
}

Tensors pad_vjp(const VjpArgs& a) {
  const auto& [low, high, interior] = a.get<Padding>();
  Tensor grad = ct(a);
  const auto negative = [](int64_t size) { return size < 0; };
  if (std::ranges::any_of(low, negative) || std::ranges::any_of(high, negative)) {
    internal_check(std::ranges::all_of(interior, [](int64_t size) { return size == 0; }),
                   "[pad] the VJP does not support negative padding together with padding between elements");
    Dims back_low = low, back_high = high;
    for (Dims* sizes : {&back_low, &back_high})
      for (int64_t& size : *sizes) size = -size;
    return {pad(grad, back_low, back_high), Tensor{}};
  }
  for (int64_t i = 0; i < grad.rank(); ++i) {
    grad = slice(grad, i, low[i], grad.dims()[i] - high[i], interior[i] + 1);
  }
  return {grad, Tensor{}};
}

std::vector<Shape> reshape_shape(Shapes o, const Attributes& a) {
  const Dims& dims = as<ResultDims>(a).dims;
  check_count(o, 1, "reshape_c1");
  check(product(dims) == o[0].elements(), "reshape_c2", "{} cannot become {}: the numbers of elements differ",
        o[0].to_string(), to_string(dims));
  return {{o[0].dtype, dims}};
}

Tensors reshape_vjp(const VjpArgs& a) {
  return {reshape(ct(a), x(a).dims())};
}

std::string slice_text(NodeText& n, Printer&) {
  const auto& [start, limit, strides] = n.node.get<SliceRange>();
  std::vector<std::string> ranges;
  for (size_t i = 0; i < start.size(); ++i) ranges.push_back(fmt::format("{}:{}:{}", start[i], limit[i], strides[i]));
  return fmt::format("{} {} [{}] : {}", n.name(), n.operands[0], fmt::join(ranges, ", "), n.signature());
}

std::vector<Shape> slice_shape(Shapes o, const Attributes& a) {
  const auto& [start, limit, strides] = as<SliceRange>(a);
  check_count(o, 1, "slice_c1");
  const size_t rank = o[0].dims.size();
  check(start.size() == rank && limit.size() == rank && strides.size() == rank, "slice_c2",
        "start is {}, wanted one entry for each dim of {} in start, in limit and in strides", to_string(start),
        o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < rank; ++i) {
    check(0 <= start[i] && start[i] <= limit[i] && limit[i] <= o[0].dims[i], "slice_c3",
          "the range {} to {} is not inside {}", to_string(start), to_string(limit), o[0].to_string());
    check(strides[i] > 0, "slice_c4", "strides {} must all be positive", to_string(strides));
    out.dims[i] = (limit[i] - start[i] + strides[i] - 1) / strides[i];
  }
  return {out};
}

Tensors slice_vjp(const VjpArgs& a) {
  const auto& [start, limit, strides] = a.get<SliceRange>();
  Padding padding{.low = start, .high = {}, .interior = {}};
  for (int64_t i = 0; i < x(a).rank(); ++i) {
    const int64_t n = ct(a).dims()[i], spread = n == 0 ? 0 : (n - 1) * strides[i] + 1;
    padding.high.push_back(x(a).dims()[i] - start[i] - spread);
    padding.interior.push_back(strides[i] - 1);
  }
  return {make_node(Op::kPad, {ct(a), constant(0, ct(a).dtype())}, padding)};
}

std::string transpose_text(NodeText& n, Printer&) {
  return fmt::format("{} {}, dims = {} : {}", n.name(), n.operands[0], to_string(n.node.get<Permutation>().dims),
                     n.signature());
}

std::vector<Shape> transpose_shape(Shapes o, const Attributes& a) {
  const Dims& dims = as<Permutation>(a).dims;
  check_count(o, 1, "transpose_c1");
  check(static_cast<int64_t>(dims.size()) == o[0].rank() && in_range_and_unique(dims, o[0].rank()), "transpose_c2",
        "{} is not a permutation of the dims of {}", to_string(dims), o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < dims.size(); ++i) out.dims[i] = o[0].dims[dims[i]];
  return {out};
}

Tensors transpose_vjp(const VjpArgs& a) {
  const Dims& permutation = a.get<Permutation>().dims;
  Dims inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = static_cast<int64_t>(i);
  return {transpose(ct(a), inverse)};
}

constexpr std::array kShapeRows{
    simple_row(Op::kBroadcastInDim, "broadcast_in_dim", broadcast_text, broadcast_shape, broadcast_vjp, Saved::kNever),
    simple_row(Op::kConcatenate, "concatenate", concatenate_text, concatenate_shape, concatenate_vjp),
    simple_row(Op::kDynamicSlice, "dynamic_slice", dynamic_slice_text, dynamic_slice_shape, dynamic_slice_vjp),
    simple_row(Op::kDynamicUpdateSlice, "dynamic_update_slice", typed_text, update_shape, update_vjp),
    simple_row(Op::kPad, "pad", pad_text, pad_shape, pad_vjp),
    view_row(simple_row(Op::kReshape, "reshape", typed_text, reshape_shape, reshape_vjp, Saved::kNever)),
    simple_row(Op::kSlice, "slice", slice_text, slice_shape, slice_vjp),
    simple_row(Op::kTranspose, "transpose", transpose_text, transpose_shape, transpose_vjp, Saved::kNever),
};

}  // namespace

std::span<const OpRow> shape() {
  return kShapeRows;
}

}  // namespace fettle::rows
