#include "graph/ops.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "graph/composite.h"

namespace fettle {
namespace {

Dims broadcast_dims(const Dims& x, const Dims& y) {
  Dims out(std::max(x.size(), y.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t a = i < x.size() ? x[x.size() - 1 - i] : 1, b = i < y.size() ? y[y.size() - 1 - i] : 1;
    internal_check(a == b || a == 1 || b == 1, "cannot broadcast {} with {} at {}", to_string(x), to_string(y),
                   PathScope::path());
    out[out.size() - 1 - i] = a == 1 ? b : a;
  }
  return out;
}

Tensor binary(Op op, const Tensor& x, const Tensor& y) {
  const Dims dims = broadcast_dims(x.dims(), y.dims());
  return make_node(op, {broadcast_to(x, dims), broadcast_to(y, dims)});
}

bool holds(DType dtype, double number) {
  if (dtype != DType::kBF16 && dtype != DType::kF16) return true;
  std::byte bits[2];
  store_float(bits, dtype, 0, static_cast<float>(number));
  return load_float(bits, dtype, 0) == static_cast<float>(number);
}

// Returns op(x, number) in x's dtype. If this dtype does not hold the number, the op is computed in f32.
template <typename Operation>
Tensor with_number(const Tensor& x, double number, Operation op) {
  const DType wide = holds(x.dtype(), number) ? x.dtype() : DType::kF32;
  return convert(op(convert(x, wide), constant(number, wide)), x.dtype());
}

Dims from_end(Dims dims, int64_t rank) {
  for (int64_t& d : dims)
    if (d < 0) d += rank;
  std::sort(dims.begin(), dims.end());
  return dims;
}

Tensor reduce(const Tensor& x, const Dims& dims, ReduceKind kind) {
  return make_node(Op::kReduce, {x}, Reduction{kind, from_end(dims, x.rank())});
}

}  // namespace

Tensor constant(double value, DType dtype) {
  return make_node(Op::kConstant, {}, ConstantValue{{dtype, {}}, value, nullptr});
}

Tensor full(double value, const Shape& shape) {
  return broadcast_to(constant(value, shape.dtype), shape.dims);
}

Tensor literal(const std::vector<double>& values, const Shape& shape) {
  return make_node(Op::kConstant, {}, ConstantValue{shape, 0, std::make_shared<const std::vector<double>>(values)});
}

Tensor zeros_like(const Tensor& x) {
  return full(0, x.shape());
}

Tensor iota(const Shape& shape, int64_t dim) {
  return make_node(Op::kIota, {}, IotaDim{shape, dim});
}

Tensor abs(const Tensor& x) {
  return make_node(Op::kAbs, {x});
}
Tensor cosine(const Tensor& x) {
  return make_node(Op::kCosine, {x});
}
Tensor erf(const Tensor& x) {
  return make_node(Op::kErf, {x});
}
Tensor exp(const Tensor& x) {
  return make_node(Op::kExponential, {x});
}
Tensor floor(const Tensor& x) {
  return make_node(Op::kFloor, {x});
}
Tensor is_finite(const Tensor& x) {
  return make_node(Op::kIsFinite, {x});
}
Tensor log(const Tensor& x) {
  return make_node(Op::kLog, {x});
}
Tensor logistic(const Tensor& x) {
  return make_node(Op::kLogistic, {x});
}
Tensor logical_not(const Tensor& x) {
  return make_node(Op::kNot, {x});
}
Tensor rsqrt(const Tensor& x) {
  return make_node(Op::kRsqrt, {x});
}
Tensor sign(const Tensor& x) {
  return make_node(Op::kSign, {x});
}
Tensor sine(const Tensor& x) {
  return make_node(Op::kSine, {x});
}
Tensor sqrt(const Tensor& x) {
  return make_node(Op::kSqrt, {x});
}
Tensor tanh(const Tensor& x) {
  return make_node(Op::kTanh, {x});
}
Tensor operator-(const Tensor& x) {
  return make_node(Op::kNegate, {x});
}

Tensor operator+(const Tensor& x, const Tensor& y) {
  return binary(Op::kAdd, x, y);
}
Tensor operator-(const Tensor& x, const Tensor& y) {
  return binary(Op::kSubtract, x, y);
}
Tensor operator*(const Tensor& x, const Tensor& y) {
  return binary(Op::kMultiply, x, y);
}
Tensor operator/(const Tensor& x, const Tensor& y) {
  return binary(Op::kDivide, x, y);
}
Tensor operator+(const Tensor& x, double y) {
  return with_number(x, y, std::plus());
}
Tensor operator-(const Tensor& x, double y) {
  return with_number(x, y, std::minus());
}
Tensor operator*(const Tensor& x, double y) {
  return with_number(x, y, std::multiplies());
}
Tensor operator/(const Tensor& x, double y) {
  return with_number(x, y, std::divides());
}
Tensor operator-(double x, const Tensor& y) {
  return with_number(y, x, [](const Tensor& of, const Tensor& number) { return number - of; });
}
Tensor operator/(double x, const Tensor& y) {
  return with_number(y, x, [](const Tensor& of, const Tensor& number) { return number / of; });
}
Tensor maximum(const Tensor& x, const Tensor& y) {
  return binary(Op::kMaximum, x, y);
}
Tensor minimum(const Tensor& x, const Tensor& y) {
  return binary(Op::kMinimum, x, y);
}
Tensor power(const Tensor& x, const Tensor& y) {
  return binary(Op::kPower, x, y);
}
Tensor remainder(const Tensor& x, const Tensor& y) {
  return binary(Op::kRemainder, x, y);
}
Tensor logical_and(const Tensor& x, const Tensor& y) {
  return binary(Op::kAnd, x, y);
}
Tensor logical_or(const Tensor& x, const Tensor& y) {
  return binary(Op::kOr, x, y);
}
Tensor bit_xor(const Tensor& x, const Tensor& y) {
  return binary(Op::kXor, x, y);
}
Tensor shift_left(const Tensor& x, int64_t bits) {
  return binary(Op::kShiftLeft, x, constant(static_cast<double>(bits), x.dtype()));
}
Tensor shift_right(const Tensor& x, int64_t bits) {
  return binary(Op::kShiftRightLogical, x, constant(static_cast<double>(bits), x.dtype()));
}

Tensor compare(const Tensor& x, Direction direction, const Tensor& y) {
  const Dims dims = broadcast_dims(x.dims(), y.dims());
  return make_node(Op::kCompare, {broadcast_to(x, dims), broadcast_to(y, dims)}, Comparison{direction});
}

Tensor select(const Tensor& pred, const Tensor& on_true, const Tensor& on_false) {
  const Dims dims = broadcast_dims(pred.dims(), broadcast_dims(on_true.dims(), on_false.dims()));
  return make_node(Op::kSelect, {broadcast_to(pred, dims), broadcast_to(on_true, dims), broadcast_to(on_false, dims)});
}

Tensor convert(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return make_node(Op::kConvert, {x}, ResultDtype{dtype});
}

Tensor bitcast_convert(const Tensor& x, DType dtype) {
  return make_node(Op::kBitcastConvert, {x}, ResultDtype{dtype});
}

Tensor reshape(const Tensor& x, const Dims& dims) {
  Dims out = dims;
  for (int64_t& d : out) {
    if (d != -1) continue;
    d = 1;
    d = x.shape().elements() / std::max<int64_t>(product(out), 1);
    break;
  }
  if (out == x.dims()) return x;
  return make_node(Op::kReshape, {x}, ResultDims{out});
}

Tensor transpose(const Tensor& x, const Dims& permutation) {
  Dims same(x.rank());
  std::iota(same.begin(), same.end(), 0);
  if (permutation == same) return x;
  return make_node(Op::kTranspose, {x}, Permutation{permutation});
}

Tensor broadcast_in_dim(const Tensor& x, const Dims& result, const Dims& dims) {
  return make_node(Op::kBroadcastInDim, {x}, Broadcast{.result = result, .dims = dims});
}

Tensor broadcast_to(const Tensor& x, const Dims& result) {
  if (x.dims() == result) return x;
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) dims.push_back(static_cast<int64_t>(result.size()) - x.rank() + i);
  return broadcast_in_dim(x, result, dims);
}

Tensor expand(const Tensor& x, int64_t dim) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + (dim < 0 ? dim + x.rank() + 1 : dim), 1);
  return reshape(x, dims);
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  if (dim < 0) dim += x.rank();
  Dims low(x.rank(), 0), high = x.dims(), strides(x.rank(), 1);
  low[dim] = start;
  high[dim] = limit;
  strides[dim] = stride;
  return make_node(Op::kSlice, {x}, SliceRange{low, high, strides});
}

Tensor pad(const Tensor& x, const Dims& low, const Dims& high, double value) {
  return make_node(Op::kPad, {x, constant(value, x.dtype())}, Padding{low, high, Dims(low.size(), 0)});
}

Tensor concatenate(const std::vector<Tensor>& xs, int64_t dim) {
  internal_check(!xs.empty(), "[concatenate_c3] found no operands, wanted one or more");
  if (xs.size() == 1) return xs[0];
  return make_node(Op::kConcatenate, xs, ConcatenateDim{dim < 0 ? dim + xs[0].rank() : dim});
}

Tensor dynamic_slice(const Tensor& x, const std::vector<Tensor>& starts, const Dims& sizes) {
  std::vector<Tensor> operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return make_node(Op::kDynamicSlice, operands, ResultDims{sizes});
}

Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, const std::vector<Tensor>& starts) {
  std::vector<Tensor> operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return make_node(Op::kDynamicUpdateSlice, operands);
}

Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDims& dims, DType result) {
  return make_node(Op::kDotGeneral, {lhs, rhs}, DotProduct{dims, result});
}

Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDims& dims) {
  return dot_general(lhs, rhs, dims, lhs.dtype());
}

Tensor reduce_sum(const Tensor& x, const Dims& dims) {
  return reduce(x, dims, ReduceKind::kAdd);
}
Tensor reduce_max(const Tensor& x, const Dims& dims) {
  return reduce(x, dims, ReduceKind::kMaximum);
}
Tensor reduce_and(const Tensor& x, const Dims& dims) {
  return reduce(x, dims, ReduceKind::kAnd);
}

Tensor take(const Tensor& table, const Tensor& ids) {
  return make_node(Op::kTake, {table, ids});
}

Tensor add_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
  return make_node(Op::kTakeTranspose, {rows, ids, table}, ResultDims{{table.dims().begin(), table.dims().end() - 1}});
}

Tensor stop_gradient(const Tensor& x) {
  return make_node(Op::kStopGradient, {x});
}

Tensor sharding_constraint(const Tensor& x, const Partition& partition) {
  return make_node(Op::kShardingConstraint, {x}, Constraint{partition});
}

Tensor place(const Tensor& x, Memory memory, const Partition& partition, const Tensor& squares) {
  std::vector<Tensor> operands{sharding_constraint(x, partition)};
  if (squares) operands.push_back(squares);
  const Tensor placed = make_node(Op::kPlace, operands, Placement{memory, partition});
  return memory == Memory::kHost ? placed : sharding_constraint(placed, partition);
}

std::vector<Tensor> optimization_barrier(const std::vector<Tensor>& xs) {
  return all_results(make_node(Op::kOptimizationBarrier, xs));
}

Tensor custom_gradient(const Tensor& value, const std::vector<Tensor>& inputs, const std::vector<Tensor>& grads) {
  internal_check(
      value.rank() == 0 && inputs.size() == grads.size(),
      "[custom_gradient_c1] {} inputs, {} gradients and the value {}; wanted one gradient per input and a scalar value",
      inputs.size(), grads.size(), value.shape().to_string());
  for (size_t i = 0; i < inputs.size(); ++i)
    internal_check(inputs[i].dims() == grads[i].dims(),
                   "[custom_gradient_c2] the gradient {} has other dims than its input {}",
                   grads[i].shape().to_string(), inputs[i].shape().to_string());
  std::vector<Tensor> operands = inputs;
  for (const Tensor& grad : grads) operands.push_back(stop_gradient(grad));
  return custom_gradient(value, operands, GradientRule{[n = inputs.size()](const VjpArgs& args) {
                           std::vector<Tensor> out(args.operands.size());
                           const Tensor& ct = args.cotangents[0];
                           for (size_t i = 1; i <= n; ++i) {
                             // Multiplies in the cotangent's dtype, because a loss scale may be too large for float16.
                             const Tensor grad = convert(args.operands[i + n], ct.dtype()) * ct;
                             out[i] = convert(grad, args.operands[i].dtype());
                           }
                           return out;
                         }});
}

Tensor custom_gradient(const Tensor& value, const std::vector<Tensor>& inputs, const GradientRule& rule) {
  std::vector<Tensor> operands{value};
  operands.insert(operands.end(), inputs.begin(), inputs.end());
  return make_node(Op::kCustomGradient, operands, std::make_shared<const GradientRule>(rule));
}

Tensor collective_permute(const Tensor& x, int64_t dim, const std::vector<int64_t>& sources,
                          const Partition& partition) {
  const Tensor moved = make_node(Op::kCollectivePermute, {x}, ShardMove{dim, sources, partition});
  const MeshAxes& mesh = Block::current().lowering().mesh;
  const int64_t devices = mesh.size_of(partition.dims[dim][0]);
  internal_check(devices == static_cast<int64_t>(sources.size()),
                 "[collective_permute_c5] {} sources for {} devices along mesh axis {}", sources.size(), devices,
                 partition.dims[dim][0]);
  shard_of(x.shape(), partition, mesh);
  return moved;
}

}  // namespace fettle
