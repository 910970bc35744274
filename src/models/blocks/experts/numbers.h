// Defines f32 arrays of numbers. Integers in f32 are exact up to 2^24, which is enough for numbers of experts.
#pragma once

#include "graph/ops.h"

namespace fettle {

inline Tensor number(int64_t value) {
  return constant(static_cast<double>(value), DType::kF32);
}

// Returns 0, 1, 2, ... along `dim`.
inline Tensor counting(const Dims& dims, int64_t dim) {
  return iota({DType::kF32, dims}, dim);
}

// Returns 1 where `pred` is true, else 0.
inline Tensor where(const Tensor& pred) {
  return convert(pred, DType::kF32);
}

}  // namespace fettle
