// Defines bitsandbytes' dynamic map: the 256 values of 8-bit codes, in [-1, 1] (signed) or [0, 1] (unsigned). Source:
// Dettmers et al. 2022.
#pragma once

#include <vector>

namespace fettle {

// The map has seven decades. Each has values ten times as large as the decade before and twice as many. It also has the
// values 0 and 1.
enum class DynamicMap { kSigned, kUnsigned };
inline constexpr int kDecades = 7;

// The values of a decade: first + n * step, n = 0 .. count - 1. For a signed map, these are the positive ones.
struct Decade {
  double first, step, count;
  double last() const { return first + step * (count - 1); }
};
Decade decade(int i, DynamicMap map);

// Returns the values of codes 0, 1, ... 255.
std::vector<double> dynamic_map_values(DynamicMap map);

}  // namespace fettle
