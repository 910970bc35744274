// Defines bitsandbytes' dynamic map: the 256 values of 8-bit codes, in [-1, 1] (signed) or [0, 1] (unsigned). Source:
// Dettmers et al. 2022.
#pragma once

#include <vector>

namespace fettle {

// The map consists of seven decades and the values 0 and 1. A signed map also has the negative values of the decades,
// but not -1. Each decade has twice as many values as the one before, and covers a range ten times as large. Decade 0
// has the smallest values.
enum class DynamicMap { kSigned, kUnsigned };
inline constexpr int kDecades = 7;

// The values of a decade: first + n * step, n = 0 .. count - 1. For a signed map, these are the positive values.
struct Decade {
  double first, step, count;
  double last() const { return first + step * (count - 1); }
};
Decade decade(int i, DynamicMap map);

// Returns the values of codes 0, 1, ... 255.
std::vector<double> dynamic_map_values(DynamicMap map);

}  // namespace fettle
