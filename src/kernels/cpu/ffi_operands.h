// Defines what the FFI handlers of the CPU's kernels share: dtypes and sizes of their operands.
#pragma once

#include <string>

#include "base/arrays/shape.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {

// The kernels compute f32 and bf16.
inline bool is_known(xla::ffi::DataType type) {
  return type == xla::ffi::F32 || type == xla::ffi::BF16;
}
inline DType dtype_of(xla::ffi::DataType type) {
  return type == xla::ffi::F32 ? DType::kF32 : DType::kBF16;
}
inline int64_t elements_of(const xla::ffi::AnyBuffer& buffer) {
  return static_cast<int64_t>(buffer.element_count());
}
inline xla::ffi::Error wrong_operands(const std::string& kernel) {
  return xla::ffi::Error(xla::ffi::ErrorCode::kInvalidArgument, kernel + ": an operand has a wrong size or dtype");
}

}  // namespace fettle::cpu
