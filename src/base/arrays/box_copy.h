// Defines functions that copy rectangular parts between dense row-major arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/arrays/box.h"

namespace fettle {

// Returns whether `box` has as many dims as `dims` and lies inside an array of these dims.
bool is_inside(const Box& box, const Dims& dims);
// Returns whether the elements of `box` are contiguous in a dense array of dims `dims`.
bool is_one_run(const Box& box, const Dims& dims);
// Returns the part that both boxes share. Some size[d] is 0 when the boxes do not overlap. Both boxes must have the
// same rank.
Box intersect(const Box& a, const Box& b);

// Splits `box` into stretches that are contiguous in both arrays, each as long as possible. Calls run(index of the
// first element in the source, its index in the target, number of elements) for each stretch, in the order of the
// target. The source array has dims `source`. The target array has dims `target`; in it, the box starts at
// `target_start`.
void for_each_run(const Box& box, const Dims& source, const Dims& target, const Dims& target_start,
                  const std::function<void(int64_t, int64_t, int64_t)>& run);

// Calls visit(index in the source, index in the target) for each element of `box` in row-major order. The source has
// dims `source` and `strides`; the target is a dense array with the dims of the box. For a dense source, for_each_run
// is faster.
void for_each_element(const Box& box, const Dims& source, const Dims& strides,
                      const std::function<void(int64_t, int64_t)>& visit);

// Copies the elements that two boxes of one global array share. `from` and `to` are dense arrays of the elements of
// their own boxes, with `width` bytes per element. Their memory must not overlap.
void copy_common(const Box& from_box, const std::byte* from, const Box& to_box, std::byte* to, int64_t width);

}  // namespace fettle
