#include "graph/shape_rules.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace fettle::shape_rules {
namespace {

// `label` is the op and the constraint of the spec: "transpose_c2".
template <typename... Args>
void check(bool ok, const char* label, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw InternalError("[{}] {}", label, fmt::format(format, std::forward<Args>(args)...));
}

void check_count(Shapes operands, size_t count, const char* label) {
  check(operands.size() == count, label, "{} operands, wanted {}", operands.size(), count);
}

bool in_range_and_unique(const Dims& dims, int64_t rank) {
  std::set<int64_t> seen;
  for (int64_t d : dims)
    if (d < 0 || d >= rank || !seen.insert(d).second) return false;
  return true;
}

}  // namespace

std::vector<Shape> same_float(Shapes o, const Attributes&) {
  check_count(o, 1, "unary_c1");
  check(is_float(o[0].dtype), "unary_i1", "{} is not a float", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> same_number(Shapes o, const Attributes&) {
  check_count(o, 1, "unary_c1");
  check(o[0].dtype != DType::kPred, "unary_i1", "{} is not a number", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> logical_not(Shapes o, const Attributes&) {
  check_count(o, 1, "not_c1");
  check(!is_float(o[0].dtype), "not_i1", "{} is a float", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> is_finite(Shapes o, const Attributes& a) {
  same_float(o, a);
  return {o[0].with_dtype(DType::kPred)};
}

std::vector<Shape> binary_number(Shapes o, const Attributes&) {
  check_count(o, 2, "binary_c1");
  check(o[0] == o[1], "binary_c1", "operands are {} and {}", o[0].to_string(), o[1].to_string());
  check(o[0].dtype != DType::kPred, "binary_i1", "{} is not a number", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> binary_bits(Shapes o, const Attributes&) {
  check_count(o, 2, "binary_c1");
  check(o[0] == o[1], "binary_c1", "operands are {} and {}", o[0].to_string(), o[1].to_string());
  check(!is_float(o[0].dtype), "binary_i1", "{} is a float", o[0].to_string());
  return {o[0]};
}

std::vector<Shape> compare(Shapes o, const Attributes& a) {
  check_count(o, 2, "compare_c1");
  check(o[0] == o[1], "compare_c1", "operands are {} and {}", o[0].to_string(), o[1].to_string());
  static const std::set<std::string> directions{"EQ", "NE", "GE", "GT", "LE", "LT"};
  check(directions.contains(a.text), "compare_i3", "direction '{}'", a.text);
  return {o[0].with_dtype(DType::kPred)};
}

std::vector<Shape> select(Shapes o, const Attributes&) {
  check_count(o, 3, "select_c1");
  check(o[0] == o[1].with_dtype(DType::kPred), "select_c1", "pred is {}, on_true {}", o[0].to_string(),
        o[1].to_string());
  check(o[1] == o[2], "select_c2", "on_true is {}, on_false {}", o[1].to_string(), o[2].to_string());
  return {o[1]};
}

std::vector<Shape> broadcast_in_dim(Shapes o, const Attributes& a) {
  check_count(o, 1, "broadcast_in_dim_c1");
  check(static_cast<int64_t>(a.dims.size()) == o[0].rank(), "broadcast_in_dim_c2", "{} dims for {}", a.dims.size(),
        o[0].to_string());
  check(in_range_and_unique(a.dims, static_cast<int64_t>(a.high.size())), "broadcast_in_dim_c3_c4", "dims {} into {}",
        to_string(a.dims), to_string(a.high));
  for (size_t i = 0; i < a.dims.size(); ++i)
    check(o[0].dims[i] == 1 || o[0].dims[i] == a.high[a.dims[i]], "broadcast_in_dim_c5", "{} along dims {} into {}",
          o[0].to_string(), to_string(a.dims), to_string(a.high));
  return {{o[0].dtype, a.high}};
}

std::vector<Shape> concatenate(Shapes o, const Attributes& a) {
  check(!o.empty(), "concatenate_c3", "no operands");
  check(a.dims.size() == 1 && a.dims[0] >= 0 && a.dims[0] < o[0].rank(), "concatenate_c4", "dimension {} of {}",
        to_string(a.dims), o[0].to_string());
  Shape out = o[0];
  for (size_t i = 1; i < o.size(); ++i) {
    Shape like = o[i];
    check(like.rank() == out.rank(), "concatenate_c2", "{} after {}", like.to_string(), out.to_string());
    out.dims[a.dims[0]] += like.dims[a.dims[0]];
    like.dims[a.dims[0]] = out.dims[a.dims[0]];
    check(like == out, "concatenate_c2", "{} beside {}", o[i].to_string(), o[0].to_string());
  }
  return {out};
}

std::vector<Shape> dynamic_slice(Shapes o, const Attributes& a) {
  check(!o.empty() && static_cast<int64_t>(o.size()) == o[0].rank() + 1, "dynamic_slice_c2", "{} start indices",
        o.size() - 1);
  check(static_cast<int64_t>(a.high.size()) == o[0].rank(), "dynamic_slice_c2", "sizes {} of {}", to_string(a.high),
        o[0].to_string());
  for (size_t i = 1; i < o.size(); ++i)
    check(o[i] == Shape{DType::kI32, {}}, "dynamic_slice_c3", "start index {} is {}", i - 1, o[i].to_string());
  for (size_t i = 0; i < a.high.size(); ++i)
    check(a.high[i] >= 0 && a.high[i] <= o[0].dims[i], "dynamic_slice_c4", "sizes {} of {}", to_string(a.high),
          o[0].to_string());
  return {{o[0].dtype, a.high}};
}

std::vector<Shape> dynamic_update_slice(Shapes o, const Attributes&) {
  check(o.size() >= 2 && static_cast<int64_t>(o.size()) == o[0].rank() + 2, "dynamic_update_slice_c4",
        "{} operands for {}", o.size(), o.empty() ? "nothing" : o[0].to_string());
  check(o[0].dtype == o[1].dtype, "dynamic_update_slice_c2", "{} into {}", o[1].to_string(), o[0].to_string());
  check(o[0].rank() == o[1].rank(), "dynamic_update_slice_c3", "{} into {}", o[1].to_string(), o[0].to_string());
  for (size_t i = 2; i < o.size(); ++i)
    check(o[i] == Shape{DType::kI32, {}}, "dynamic_update_slice_c5", "start index {} is {}", i - 2, o[i].to_string());
  for (int64_t i = 0; i < o[0].rank(); ++i)
    check(o[1].dims[i] <= o[0].dims[i], "dynamic_update_slice_c6", "{} into {}", o[1].to_string(), o[0].to_string());
  return {o[0]};
}

std::vector<Shape> pad(Shapes o, const Attributes& a) {
  check_count(o, 2, "pad_c1");
  check(o[1] == Shape{o[0].dtype, {}}, "pad_c1", "padding value {} for {}", o[1].to_string(), o[0].to_string());
  const size_t rank = o[0].dims.size();
  check(a.low.size() == rank && a.high.size() == rank && a.strides.size() == rank, "pad_c2", "{} for {}",
        to_string(a.low), o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < rank; ++i) {
    check(a.strides[i] >= 0, "pad_c3", "interior {}", to_string(a.strides));
    out.dims[i] = o[0].dims[i] + a.low[i] + a.high[i] + std::max<int64_t>(o[0].dims[i] - 1, 0) * a.strides[i];
    check(out.dims[i] >= 0, "pad_c4", "low {} high {} of {}", to_string(a.low), to_string(a.high), o[0].to_string());
  }
  return {out};
}

std::vector<Shape> reshape(Shapes o, const Attributes& a) {
  check_count(o, 1, "reshape_c1");
  check(product(a.high) == o[0].elements(), "reshape_c2", "{} as {}", o[0].to_string(), to_string(a.high));
  return {{o[0].dtype, a.high}};
}

std::vector<Shape> slice(Shapes o, const Attributes& a) {
  check_count(o, 1, "slice_c1");
  const size_t rank = o[0].dims.size();
  check(a.low.size() == rank && a.high.size() == rank && a.strides.size() == rank, "slice_c2", "{} of {}",
        to_string(a.low), o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < rank; ++i) {
    check(0 <= a.low[i] && a.low[i] <= a.high[i] && a.high[i] <= o[0].dims[i], "slice_c3", "{}..{} of {}",
          to_string(a.low), to_string(a.high), o[0].to_string());
    check(a.strides[i] > 0, "slice_c4", "strides {}", to_string(a.strides));
    out.dims[i] = (a.high[i] - a.low[i] + a.strides[i] - 1) / a.strides[i];
  }
  return {out};
}

std::vector<Shape> transpose(Shapes o, const Attributes& a) {
  check_count(o, 1, "transpose_c1");
  check(static_cast<int64_t>(a.dims.size()) == o[0].rank() && in_range_and_unique(a.dims, o[0].rank()), "transpose_c2",
        "permutation {} of {}", to_string(a.dims), o[0].to_string());
  Shape out = o[0];
  for (size_t i = 0; i < a.dims.size(); ++i) out.dims[i] = o[0].dims[a.dims[i]];
  return {out};
}

std::vector<Shape> dot_general(Shapes o, const Attributes& a) {
  check_count(o, 2, "dot_general_c1");
  const DotDims& d = a.dot;
  check(d.lhs_batching.size() == d.rhs_batching.size(), "dot_general_c1", "{} and {} batching dims",
        d.lhs_batching.size(), d.rhs_batching.size());
  check(d.lhs_contracting.size() == d.rhs_contracting.size(), "dot_general_c2", "{} and {} contracting dims",
        d.lhs_contracting.size(), d.rhs_contracting.size());
  auto joined = [](Dims x, const Dims& y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
  };
  const Dims lhs_used = joined(d.lhs_batching, d.lhs_contracting), rhs_used = joined(d.rhs_batching, d.rhs_contracting);
  check(in_range_and_unique(lhs_used, o[0].rank()), "dot_general_c3_c5", "lhs dims {} of {}", to_string(lhs_used),
        o[0].to_string());
  check(in_range_and_unique(rhs_used, o[1].rank()), "dot_general_c4_c7", "rhs dims {} of {}", to_string(rhs_used),
        o[1].to_string());
  const bool float8 = is_float8(o[0].dtype) && is_float8(o[1].dtype);  // of either kind
  check(o[0].dtype == o[1].dtype || float8, "dot_general_c13", "{} times {}", o[0].to_string(), o[1].to_string());
  Shape out{o[0].dtype, {}};
  if (!a.text.empty()) out.dtype = dtype_from_hf(a.text);
  for (size_t i = 0; i < d.lhs_batching.size(); ++i) {
    check(o[0].dims[d.lhs_batching[i]] == o[1].dims[d.rhs_batching[i]], "dot_general_c9", "{} times {}",
          o[0].to_string(), o[1].to_string());
    out.dims.push_back(o[0].dims[d.lhs_batching[i]]);
  }
  for (size_t i = 0; i < d.lhs_contracting.size(); ++i)
    check(o[0].dims[d.lhs_contracting[i]] == o[1].dims[d.rhs_contracting[i]], "dot_general_c10",
          "{} times {}, contracting {} with {}", o[0].to_string(), o[1].to_string(), to_string(d.lhs_contracting),
          to_string(d.rhs_contracting));
  auto append_free = [&out](const Shape& shape, const Dims& used) {
    for (int64_t i = 0; i < shape.rank(); ++i)
      if (std::find(used.begin(), used.end(), i) == used.end()) out.dims.push_back(shape.dims[i]);
  };
  append_free(o[0], lhs_used);
  append_free(o[1], rhs_used);
  return {out};
}

std::vector<Shape> reduce(Shapes o, const Attributes& a) {
  check_count(o, 1, "reduce_c1");
  check(in_range_and_unique(a.dims, o[0].rank()), "reduce_c4_c5", "dimensions {} of {}", to_string(a.dims),
        o[0].to_string());
  static const std::set<std::string> kinds{"add", "maximum", "minimum", "and", "or"};
  check(kinds.contains(a.text), "reduce_c6", "kind '{}'", a.text);
  const bool logical = a.text == "and" || a.text == "or", order = a.text == "maximum" || a.text == "minimum";
  check(logical == (o[0].dtype == DType::kPred) && (!order || is_float(o[0].dtype)), "reduce_i1", "{} of {}", a.text,
        o[0].to_string());
  Shape out{o[0].dtype, {}};
  for (int64_t i = 0; i < o[0].rank(); ++i)
    if (std::find(a.dims.begin(), a.dims.end(), i) == a.dims.end()) out.dims.push_back(o[0].dims[i]);
  return {out};
}

namespace {

bool begin_alike(const Dims& a, const Dims& b, int64_t count) {
  return static_cast<int64_t>(std::min(a.size(), b.size())) >= count &&
         std::equal(a.begin(), a.begin() + count, b.begin());
}

}  // namespace

std::vector<Shape> take(Shapes o, const Attributes&) {
  check_count(o, 2, "gather_c1");
  check(o[0].rank() >= 2 && begin_alike(o[0].dims, o[1].dims, o[0].rank() - 2), "gather_c1",
        "table {} is not [batch.., rows, columns] with the batch dims of ids {}", o[0].to_string(), o[1].to_string());
  check(o[1].dtype == DType::kI32, "gather_i2", "ids are {}", o[1].to_string());
  Shape out{o[0].dtype, o[1].dims};
  out.dims.push_back(o[0].dims.back());
  return {out};
}

std::vector<Shape> take_transpose(Shapes o, const Attributes& a) {
  check(o.size() == 2 || o.size() == 3, "scatter_c1", "{} operands", o.size());
  const auto batch = static_cast<int64_t>(a.high.size()) - 1;
  check(o[1].dtype == DType::kI32 && batch >= 0 && begin_alike(a.high, o[1].dims, batch), "scatter_i2", "ids are {}",
        o[1].to_string());
  Dims wanted = o[1].dims;
  wanted.push_back(o[0].rank() > 0 ? o[0].dims.back() : 0);
  check(o[0].dims == wanted, "scatter_c4", "updates {} for ids {}", o[0].to_string(), o[1].to_string());
  Shape out{o[0].dtype, a.high};
  out.dims.push_back(o[0].dims.back());
  check(o.size() == 2 || o[2] == out, "scatter_c6", "onto {}, wanted {}", o.size() == 2 ? "" : o[2].to_string(),
        out.to_string());
  return {out};
}

std::vector<Shape> identity(Shapes o, const Attributes& a) {
  check(!o.empty(), "identity_c1", "no operands");
  check(a.partition.dims.empty() || static_cast<int64_t>(a.partition.dims.size()) == o[0].rank(), "sharding_c1",
        "{} entries for {}", a.partition.dims.size(), o[0].to_string());
  return {o[0]};
}

std::vector<Shape> place(Shapes o, const Attributes& a) {
  check(o.size() == 1 || (o.size() == 2 && o[1] == Shape{DType::kF32, {}}), "place_c1",
        "{} operands, or a second that is no f32 scalar", o.size());
  return identity(o, a);
}

std::vector<Shape> identity_all(Shapes o, const Attributes&) {
  check(!o.empty(), "identity_c1", "no operands");
  return {o.begin(), o.end()};
}

}  // namespace fettle::shape_rules
