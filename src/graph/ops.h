// Defines the ops that model code uses. Each function appends to the current block and returns its result.
//
// The operands of an arithmetic op must have the same dtype. Binary ops broadcast like NumPy: dims are aligned at the
// end, and a dim that is missing or has size 1 is repeated. Most ops have the names and meanings that StableHLO gives
// them.
//
// If one operand is a number that the other's 16-bit dtype cannot hold, the op is computed in f32 and only its result
// is rounded, as in PyTorch. To round the number first, give it as a constant().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/block.h"
#include "graph/op_table.h"

namespace fettle {

// Constants.
Tensor constant(double value, DType dtype);                             // scalar
Tensor full(double value, const Shape& shape);                          // every element is `value`
Tensor literal(const std::vector<double>& values, const Shape& shape);  // small tables only: printed in full
Tensor zeros_like(const Tensor& x);
Tensor iota(const Shape& shape, int64_t dim);  // 0, 1, ... along dim

// Elementwise ops.
Tensor abs(const Tensor& x);
Tensor cosine(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor is_finite(const Tensor& x);
Tensor log(const Tensor& x);
Tensor logistic(const Tensor& x);  // 1 / (1 + exp(-x))
Tensor logical_not(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor sine(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor operator-(const Tensor& x);
Tensor operator+(const Tensor& x, const Tensor& y);
Tensor operator-(const Tensor& x, const Tensor& y);
Tensor operator*(const Tensor& x, const Tensor& y);
Tensor operator/(const Tensor& x, const Tensor& y);
Tensor operator+(const Tensor& x, double y);
Tensor operator-(const Tensor& x, double y);
Tensor operator*(const Tensor& x, double y);
Tensor operator/(const Tensor& x, double y);
Tensor operator-(double x, const Tensor& y);
Tensor operator/(double x, const Tensor& y);
Tensor maximum(const Tensor& x, const Tensor& y);
Tensor minimum(const Tensor& x, const Tensor& y);
Tensor power(const Tensor& x, const Tensor& y);
Tensor remainder(const Tensor& x, const Tensor& y);
Tensor logical_and(const Tensor& x, const Tensor& y);
Tensor logical_or(const Tensor& x, const Tensor& y);
Tensor bit_xor(const Tensor& x, const Tensor& y);
Tensor shift_left(const Tensor& x, int64_t bits);
Tensor shift_right(const Tensor& x, int64_t bits);  // fills with zeros
Tensor compare(const Tensor& x, Direction direction, const Tensor& y);
Tensor select(const Tensor& pred, const Tensor& on_true, const Tensor& on_false);  // broadcasts all three
Tensor convert(const Tensor& x, DType dtype);          // returns x itself when it has that dtype
Tensor bitcast_convert(const Tensor& x, DType dtype);  // `dtype` must be as wide as x's dtype

// Ops that change the shape.
Tensor reshape(const Tensor& x, const Dims& dims);  // one dim may be -1: computed from the others
Tensor transpose(const Tensor& x, const Dims& permutation);
Tensor broadcast_in_dim(const Tensor& x, const Dims& result, const Dims& dims);
Tensor broadcast_to(const Tensor& x, const Dims& result);  // by NumPy's rule
Tensor expand(const Tensor& x, int64_t dim);               // adds a 1-sized dim at `dim`
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
Tensor pad(const Tensor& x, const Dims& low, const Dims& high, double value = 0);
Tensor concatenate(const std::vector<Tensor>& xs, int64_t dim);
Tensor dynamic_slice(const Tensor& x, const std::vector<Tensor>& starts, const Dims& sizes);  // starts are clamped
Tensor dynamic_update_slice(const Tensor& x, const Tensor& update, const std::vector<Tensor>& starts);

// Products, reductions, gather and scatter. For products, `result` is the dtype of the result; accumulation is in f32
// for bf16 and f16 operands.
Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDims& dims, DType result);
Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDims& dims);
Tensor reduce_sum(const Tensor& x, const Dims& dims);  // removes `dims`; a negative dim counts from the end
Tensor reduce_max(const Tensor& x, const Dims& dims);
Tensor reduce_and(const Tensor& x, const Dims& dims);
// Reads rows of table [batch.., R, C] at ids [batch.., ...] and returns [batch.., ..., C]. Ids out of range are
// clamped. When an id occurs several times, the gradient of its table row is the sum over the occurrences.
Tensor take(const Tensor& table, const Tensor& ids);
// Returns the table with `rows` [batch.., ..., C] added at ids. Ignores rows whose ids are out of range.
Tensor add_rows(const Tensor& table, const Tensor& ids, const Tensor& rows);

// Ops for gradients, placement and moves between devices.
Tensor stop_gradient(const Tensor& x);
Tensor sharding_constraint(const Tensor& x, const Partition& partition);
// Copies x to `memory`, split over the mesh by `partition`. The gradient is copied back to the memory of x. A value in
// the host's memory has only three uses: an op can slice it, replace a slice of it, or place it elsewhere. `squares`
// (an f32 scalar whose value does not matter, or null) gets a norm out of the backward pass: its gradient is the
// squared norm of x's gradient. So the computation of this norm need not read the gradient back from the host.
Tensor place(const Tensor& x, Memory memory, const Partition& partition = {}, const Tensor& squares = {});
std::vector<Tensor> optimization_barrier(const std::vector<Tensor>& xs);
// Returns the scalar `value` and defines its gradient: inputs[i] gets grads[i] times the cotangent. Use it for sums
// whose gradient is cheapest to compute together with the value.
Tensor custom_gradient(const Tensor& value, const std::vector<Tensor>& inputs, const std::vector<Tensor>& grads);
// Returns `value`; `rule` computes its gradient. VjpArgs::operands has `value` and then `inputs`; the cotangent that
// `rule` returns for `value` must be null. VjpArgs::results[0] is the result. `rule` may use only these tensors, and
// tensors that it makes itself.
struct GradientRule {
  std::function<std::vector<Tensor>(const VjpArgs& args)> gradient;
};
Tensor custom_gradient(const Tensor& value, const std::vector<Tensor>& inputs, const GradientRule& rule);
// Moves shards between devices: shard i of the result along `dim` is shard sources[i] of x. `partition` says how x is
// split; one mesh axis of sources.size() devices splits `dim`. On one device, `sources` must be {0}, and the result is
// x.
Tensor collective_permute(const Tensor& x, int64_t dim, const std::vector<int64_t>& sources,
                          const Partition& partition);

}  // namespace fettle
