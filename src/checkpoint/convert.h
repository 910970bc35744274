// Defines the conversion of stored elements between float dtypes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arrays/shape.h"

namespace fettle {

// Copies `count` elements and converts them between bf16, f16, f32 and f64. Each value goes through f32 and is rounded
// to nearest even. If the dtypes are equal (any dtype), copies the bytes. The pointers need not be aligned; the ranges
// must not overlap. Throws InternalError for other dtypes.
void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count);

}  // namespace fettle
