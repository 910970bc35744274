// Defines matrix products of 8-bit floats. Each array has one scale, computed from the array's largest magnitude at the
// time of the product ("current scaling").
//
// Scales are powers of two, so that scaling itself rounds nothing. Hardware without 8-bit products multiplies the same
// rounded values in a wider dtype, and therefore gives the same numbers.
#pragma once

#include "graph/block.h"

namespace fettle {

// Represents an array x as values * scale: `values` in 8-bit floats, `scale` as a scalar of x's dtype.
struct ScaledFloat8 {
  Tensor values, scale;
};

// Rounds x (bf16 or f32) to `float8` with the smallest scale that keeps the largest |x| in range. If an element is
// infinite or NaN, all represented elements are NaN. Gradients do not flow through this op.
ScaledFloat8 to_float8(const Tensor& x, DType float8);

// Returns the dot_general of the arrays that x and y represent, in the dtype `result`. Accumulates in f32.
Tensor scaled_dot(const ScaledFloat8& x, const ScaledFloat8& y, const DotDims& dims, DType result);

// Returns the dot_general of x and y, both rounded to types.forward. The result has x's dtype. The VJP rounds the
// cotangent to types.gradient. It multiplies the rounded cotangent by the rounded y for x's gradient, and by the
// rounded x for y's gradient.
Tensor float8_dot(const Tensor& x, const Tensor& y, const DotDims& dims, const Float8& types);

}  // namespace fettle
