// Defines the copying of rectangular boxes between dense row-major arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/box.h"

namespace fettle {

// True when `box` has the rank of `dims` and lies inside it.
bool is_inside(const Box& box, const Dims& dims);
// The common part; any size[d] == 0 when there is none. Ranks must agree.
Box intersect(const Box& a, const Box& b);

// Calls run(source element, target element, elements) for each longest stretch of `box` that is contiguous in an
// array of dims `source` and in one of dims `target`, where the box starts at `target_start`. In target order.
void for_each_run(const Box& box, const Dims& source, const Dims& target, const Dims& target_start,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

// Copies `count` elements, converting between float dtypes (round to nearest even); equal dtypes are plain bytes.
// Neither pointer need be aligned; they must not overlap. Throws InternalError on other pairs.
void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count);

}  // namespace fettle
