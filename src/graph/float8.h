// Defines matrix products of 8-bit floats, with one scale per array, computed from the array's largest value at that
// moment ("current scaling").
//
// Scales are powers of two, so that scaling itself rounds nothing: hardware without 8-bit products gives the same
// numbers.
#pragma once

#include "graph/block.h"

namespace fettle {

// Stands for the array values * scale; `scale` is a scalar of that array's dtype.
struct ScaledFloat8 {
  Tensor values, scale;
};

// x (bf16 or f32) with the smallest scale that keeps its largest |x| in range. Elements that are not finite stay so.
// Gradients do not flow through.
ScaledFloat8 to_float8(const Tensor& x, DType float8);

// dot_general of the arrays that both stand for, accumulated in f32.
Tensor scaled_dot(const ScaledFloat8& x, const ScaledFloat8& y, const DotDims& dims, DType result);

// dot_general of x and y, both rounded to types.forward. Its VJP rounds the cotangent to types.gradient and multiplies
// it by the rounded factors. The result has x's dtype.
Tensor float8_dot(const Tensor& x, const Tensor& y, const DotDims& dims, const Float8& types);

}  // namespace fettle
