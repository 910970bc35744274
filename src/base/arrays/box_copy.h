// Defines the copying of rectangular parts between dense row-major arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/arrays/box.h"

namespace fettle {

// True when `box` has the rank of `dims` and lies inside it.
bool is_inside(const Box& box, const Dims& dims);
// True when the elements of `box` follow one another in a dense array of `dims`.
bool is_one_run(const Box& box, const Dims& dims);
// The common part; any size[d] == 0 when there is none. Ranks must agree.
Box intersect(const Box& a, const Box& b);

// Calls run(source element, target element, elements) for each longest stretch of `box` that is contiguous in an
// array of dims `source` and in one of dims `target`, where the box starts at `target_start`. In target order.
void for_each_run(const Box& box, const Dims& source, const Dims& target, const Dims& target_start,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

// Calls visit(source element, target element) for each element of `box` in row-major order: a source of dims `source`
// with `strides`, a dense target of the box alone. For the rare view that is not dense.
void for_each_element(const Box& box, const Dims& source, const Dims& strides,
                      const std::function<void(int64_t, int64_t)>& visit);

// Copies what two boxes of one global array have in common. Each holds its own elements, dense, `width` bytes each;
// they must not overlap in memory.
void copy_common(const Box& from_box, const std::byte* from, const Box& to_box, std::byte* to, int64_t width);

}  // namespace fettle
