// Defines the op table's rows for ops that reduce dims, read rows of a table by ids, or add to rows of a table.
#include <algorithm>
#include <array>
#include <cmath>

#include "graph/ops.h"
#include "graph/rows/rows.h"

namespace fettle::rows {
namespace {

constexpr const char* kKinds[] = {"add", "maximum", "minimum", "and", "or"};

// Returns the literal of the value with which the reduction starts.
std::string initial(ReduceKind kind, DType dtype) {
  switch (kind) {
    case ReduceKind::kAdd: return mlir_element(0, dtype);
    case ReduceKind::kMaximum: return mlir_element(-INFINITY, dtype);
    case ReduceKind::kMinimum: return mlir_element(INFINITY, dtype);
    case ReduceKind::kAnd: return "true";
    case ReduceKind::kOr: return "false";
  }
  throw InternalError("unknown reduction {}", static_cast<int>(kind));
}

std::string reduce_text(NodeText& n, Printer& printer) {
  const auto& [kind, dims] = n.node.get<Reduction>();
  const Shape scalar{n.node.results[0].dtype, {}};
  printer.name_results(n);
  const std::string start = printer.fresh(), type = mlir_type(scalar);
  printer.line(start, fmt::format("stablehlo.constant dense<{}> : {}", initial(kind, scalar.dtype), type), n.node);
  return fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {} : ({}, {}) -> {}",
                     n.operands[0], start, kKinds[static_cast<size_t>(kind)], to_string(dims), n.types[0], type,
                     n.result());
}

std::vector<Shape> reduce_shape(Shapes o, const Attributes& a) {
  const auto& [kind, dims] = as<Reduction>(a);
  check_count(o, 1, "reduce_c1");
  check(in_range_and_unique(dims, o[0].rank()), "reduce_c4_c5", "the dimensions {} repeat a dim or are not all in {}",
        to_string(dims), o[0].to_string());
  const bool logical = kind == ReduceKind::kAnd || kind == ReduceKind::kOr;
  const bool order = kind == ReduceKind::kMaximum || kind == ReduceKind::kMinimum;
  check(logical == (o[0].dtype == DType::kPred) && (!order || is_float(o[0].dtype)), "reduce_i1", "{} cannot reduce {}",
        kKinds[static_cast<size_t>(kind)], o[0].to_string());
  Shape out{o[0].dtype, {}};
  for (int64_t i = 0; i < o[0].rank(); ++i)
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) out.dims.push_back(o[0].dims[i]);
  return {out};
}

Tensors reduce_vjp(const VjpArgs& a) {
  const auto& [kind, dims] = a.get<Reduction>();
  Dims kept = x(a).dims();
  for (int64_t d : dims) kept[d] = 1;
  const Tensor spread = broadcast_to(reshape(ct(a), kept), x(a).dims());
  if (kind == ReduceKind::kAdd) return {spread};
  if (kind == ReduceKind::kAnd || kind == ReduceKind::kOr) return {Tensor{}};
  // If several elements are equal to the maximum (or minimum), they share the cotangent equally.
  const Tensor chosen =
      convert(compare(x(a), Direction::kEQ, broadcast_to(reshape(out(a), kept), x(a).dims())), x(a).dtype());
  const Tensor count = broadcast_to(reshape(reduce_sum(chosen, dims), kept), x(a).dims());
  return {spread * chosen / count};
}

// Formats the attributes that list the leading `batch` dims of a table and of its ids. Both attributes list the same
// dims.
std::string batching(const char* of_table, const char* of_ids, int64_t batch) {
  Dims dims;
  for (int64_t d = 0; d < batch; ++d) dims.push_back(d);
  return batch == 0 ? "" : fmt::format("{} = {}, {} = {}, ", of_table, to_string(dims), of_ids, to_string(dims));
}

std::string take_text(NodeText& n, Printer&) {
  const int64_t rank = n.node.operands[1].rank(), columns = n.node.results[0].dims.back();
  const int64_t batch = n.node.operands[0].rank() - 2;
  Dims sizes(static_cast<size_t>(batch) + 1, 1);
  sizes.push_back(columns);
  return fmt::format(
      "\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{}], collapsed_slice_dims "
      "= "
      "[{}], {}start_index_map = [{}], index_vector_dim = {}>, indices_are_sorted = false, slice_sizes = array<i64: "
      "{}>}}> : {}",
      n.operands[0], n.operands[1], rank, batch,
      batching("operand_batching_dims", "start_indices_batching_dims", batch), batch, rank, fmt::join(sizes, ", "),
      n.signature());
}

bool begin_alike(const Dims& a, const Dims& b, int64_t count) {
  return static_cast<int64_t>(std::min(a.size(), b.size())) >= count &&
         std::equal(a.begin(), a.begin() + count, b.begin());
}

std::vector<Shape> take_shape(Shapes o, const Attributes&) {
  check_count(o, 2, "gather_c1");
  check(o[0].rank() >= 2 && begin_alike(o[0].dims, o[1].dims, o[0].rank() - 2), "gather_c1",
        "table {} is not [batch.., rows, columns] with the batch dims of ids {}", o[0].to_string(), o[1].to_string());
  check(o[1].dtype == DType::kI32, "gather_i2", "ids are {}, wanted i32", o[1].to_string());
  Shape out{o[0].dtype, o[1].dims};
  out.dims.push_back(o[0].dims.back());
  return {out};
}

Tensors take_vjp(const VjpArgs& a) {
  // gather clamps ids that are out of range, but scatter ignores them. So the ids are clamped here.
  const Dims rows(x(a).dims().begin(), x(a).dims().end() - 1);
  const Tensor last = constant(static_cast<double>(rows.back() - 1), DType::kI32);
  const Tensor ids = minimum(maximum(y(a), constant(0, DType::kI32)), last);
  const Tensor updates = convert(ct(a), sum_dtype(x(a).dtype()));
  return {convert(make_node(Op::kTakeTranspose, {updates, ids}, ResultDims{rows}), x(a).dtype()), Tensor{}};
}

// Operands: the updates, their ids and the table. There is no table if the result starts from zeros.
std::string scatter_text(NodeText& n, Printer& printer) {
  const std::string scalar = mlir_type({n.node.results[0].dtype, {}});
  const int64_t rank = n.node.operands[1].rank(), batch = n.node.results[0].rank() - 2;
  printer.name_results(n);
  const std::string table = n.operands.size() > 2 ? n.operands[2] : printer.fresh();
  const std::string a = printer.fresh(), b = printer.fresh(), sum = printer.fresh();
  if (n.operands.size() == 2)
    printer.line(table,
                 fmt::format("stablehlo.constant dense<{}> : {}", mlir_element(0, n.node.results[0].dtype), n.result()),
                 n.node);
  return fmt::format(
      "\"stablehlo.scatter\"({}, {}, {}) <{{indices_are_sorted = false, scatter_dimension_numbers = "
      "#stablehlo.scatter<update_window_dims = [{}], inserted_window_dims = [{}], {}scatter_dims_to_operand_dims = "
      "[{}], index_vector_dim = {}>, unique_indices = false}}> ({{ ^bb0({}: {}, {}: {}): {} = stablehlo.add {}, {} : "
      "{} stablehlo.return {} : {} }}) : ({}, {}, {}) -> {}",
      table, n.operands[1], n.operands[0], rank, batch,
      batching("input_batching_dims", "scatter_indices_batching_dims", batch), batch, rank, a, scalar, b, scalar, sum,
      a, b, scalar, sum, scalar, n.result(), n.types[1], n.types[0], n.result());
}

std::vector<Shape> scatter_shape(Shapes o, const Attributes& a) {
  const Dims& dims = as<ResultDims>(a).dims;
  check(o.size() == 2 || o.size() == 3, "scatter_c1", "found {} operands, wanted 2 or 3", o.size());
  const auto batch = static_cast<int64_t>(dims.size()) - 1;
  check(o[1].dtype == DType::kI32 && batch >= 0 && begin_alike(dims, o[1].dims, batch), "scatter_i2",
        "ids are {}, wanted i32 with the batch dims first", o[1].to_string());
  Dims wanted = o[1].dims;
  wanted.push_back(o[0].rank() > 0 ? o[0].dims.back() : 0);
  check(o[0].dims == wanted, "scatter_c4", "updates {} do not fit ids {}", o[0].to_string(), o[1].to_string());
  Shape out{o[0].dtype, dims};
  out.dims.push_back(o[0].dims.back());
  check(o.size() == 2 || o[2] == out, "scatter_c6", "the table is {}, wanted {}", o.size() == 2 ? "" : o[2].to_string(),
        out.to_string());
  return {out};
}

Tensors scatter_vjp(const VjpArgs& a) {
  const Tensor rows = constant(static_cast<double>(a.get<ResultDims>().dims.back()), DType::kI32);
  const Tensor inside =
      logical_and(compare(y(a), Direction::kGE, constant(0, DType::kI32)), compare(y(a), Direction::kLT, rows));
  const Tensor taken = take(ct(a), y(a));
  Tensors grads{select(expand(inside, -1), taken, constant(0, taken.dtype())), Tensor{}};
  if (a.operands.size() > 2) grads.push_back(ct(a));
  return grads;
}

// If the scatter starts from zeros, adds its updates directly to `sum`, so that a trip of a loop touches only the rows
// of `sum` that get updates.
Tensor scatter_accumulate(const Tensor& sum, const Tensor& result) {
  const Node& node = result.block()->node(result.node());
  if (node.operands.size() > 2) return sum + convert(result, DType::kF32);
  return make_node(Op::kTakeTranspose, {convert(node.operands[0], DType::kF32), node.operands[1], sum},
                   node.get<ResultDims>());
}

constexpr std::array kGatherRows{
    simple_row(Op::kReduce, "reduce", reduce_text, reduce_shape, reduce_vjp),
    simple_row(Op::kTake, "gather", take_text, take_shape, take_vjp),
    OpRow{.op = Op::kTakeTranspose,
          .name = "scatter",
          .spell = scatter_text,
          .shape = scatter_shape,
          .vjp = scatter_vjp,
          .flops = nullptr,
          .needs = all_operands,
          .saved = Saved::kAsValue,
          .accumulate = scatter_accumulate},
};

}  // namespace

std::span<const OpRow> gather() {
  return kGatherRows;
}

}  // namespace fettle::rows
