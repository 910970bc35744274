// Defines checks of the dtypes and sizes of operands, for the FFI handlers of the CPU's kernels.
#pragma once

#include <string>

#include "base/arrays/shape.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {

// Returns whether the kernels support the dtype.
inline bool is_known(xla::ffi::DataType type) {
  return type == xla::ffi::F32 || type == xla::ffi::BF16;
}
inline DType dtype_of(xla::ffi::DataType type) {
  return type == xla::ffi::F32 ? DType::kF32 : DType::kBF16;
}
template <typename Buffer>
int64_t elements_of(const Buffer& buffer) {
  return static_cast<int64_t>(buffer.element_count());
}
inline xla::ffi::Error wrong_operands(const std::string& kernel) {
  return xla::ffi::Error(xla::ffi::ErrorCode::kInvalidArgument, kernel + ": an operand has a wrong size or dtype");
}

}  // namespace fettle::cpu
