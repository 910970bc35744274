// Defines products of factors in 8-bit floats, with one scale for an array, taken from its largest value at hand
// ("current scaling").
//
// Scales are powers of two: nothing but the 8-bit float rounds, so hardware without such products gives the same.
#pragma once

#include "graph/block.h"

namespace fettle {

// values * scale stands for an array; `scale` is a scalar of the array's own dtype.
struct ScaledFloat8 {
  Tensor values, scale;
};

// x (bf16 or f32) with the smallest scale that keeps its largest |x| in range. Not finite where x is not. No gradient
// goes through.
ScaledFloat8 to_float8(const Tensor& x, DType float8);

// dot_general of what both stand for, accumulated in f32.
Tensor scaled_dot(const ScaledFloat8& x, const ScaledFloat8& y, const DotDims& dims, DType result);

// dot_general of x and y in types.forward; its VJP takes products of the same factors with the gradient in
// types.gradient. The result has x's dtype.
Tensor float8_dot(const Tensor& x, const Tensor& y, const DotDims& dims, const Float8& types);

}  // namespace fettle
