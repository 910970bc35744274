#include "graph/float8.h"

#include <numeric>

#include "graph/ops.h"

namespace fettle {
namespace {

// An array's largest magnitude counts as at least this number, so that an array of zeros does not cause a division by
// zero. Gradients are usually far larger.
constexpr double kSmallest = 1e-30;

// Returns the largest power of two <= x, in f32.
Tensor power_of_two_below(const Tensor& x) {
  const Tensor exponent = logical_and(bitcast_convert(x, DType::kU32), constant(0x7f800000, DType::kU32));
  return bitcast_convert(exponent, DType::kF32);
}

}  // namespace

ScaledFloat8 to_float8(const Tensor& x, DType float8) {
  Dims all(static_cast<size_t>(x.rank()));
  std::iota(all.begin(), all.end(), 0);
  const Tensor still = stop_gradient(x);
  const Tensor largest = maximum(convert(reduce_max(abs(still), all), DType::kF32), constant(kSmallest, DType::kF32));
  const Tensor inverse = power_of_two_below(largest_float8(float8) / largest);
  return {convert(still * convert(inverse, x.dtype()), float8), convert(1.0 / inverse, x.dtype())};
}

Tensor scaled_dot(const ScaledFloat8& x, const ScaledFloat8& y, const DotDims& dims, DType result) {
  return dot_general(x.values, y.values, dims, result) * convert(x.scale * y.scale, result);
}

Tensor float8_dot(const Tensor& x, const Tensor& y, const DotDims& dims, const Float8& types) {
  const Tensor product = scaled_dot(to_float8(x, types.forward), to_float8(y, types.forward), dims, x.dtype());
  return make_node(Op::kFloat8Dot, {product, x, y}, Float8Product{dims, types});
}

}  // namespace fettle
