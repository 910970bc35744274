// Defines trial_numbers, which makes reproducible inputs for checks of a device, and relative_distance, which returns
// how far a result is from the expected one.
#pragma once

#include <span>
#include <vector>

#include "base/arrays/host_array.h"

namespace fettle {

// Returns an array of reproducible pseudo-random numbers in [-scale, scale). The dtype of `shape` must be a float
// dtype.
HostArray trial_numbers(const Shape& shape, uint32_t seed, float scale = 1);

// Returns the elements of an array of bf16, f16, f32 or f64, rounded to f32.
std::vector<double> doubles(const HostArray& array);

// Returns |got - wanted| / |wanted| (Euclidean norms). Equal values have distance 0, even if all are zero. A value that
// is not finite makes the result infinite or NaN. `got` and `wanted` must have the same number of elements.
double relative_distance(std::span<const double> got, std::span<const double> wanted);

}  // namespace fettle
