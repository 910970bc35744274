// Defines the conversion of stored elements between float dtypes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arrays/shape.h"

namespace fettle {

// Copies `count` elements, converting between float dtypes (round to nearest even); equal dtypes are plain bytes.
// Neither pointer need be aligned; they must not overlap. Throws InternalError on other pairs.
void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count);

}  // namespace fettle
