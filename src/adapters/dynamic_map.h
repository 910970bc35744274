// Defines bitsandbytes' dynamic map: 256 values in [-1, 1] or [0, 1], which 8-bit codes stand for.
// Source: Dettmers et al. 2022.
#pragma once

#include <vector>

namespace fettle {

// Values of the map grow tenfold from one of seven decades to the next, with twice as many in each; 0 and 1 besides.
enum class DynamicMap { kSigned, kUnsigned };
inline constexpr int kDecades = 7;

// The numbered values of a decade: first + n * step, n = 0 .. count - 1; of a signed map those above 0.
struct Decade {
  double first, step, count;
  double last() const { return first + step * (count - 1); }
};
Decade decade(int i, DynamicMap map);

// The map's value for code 0, 1, ... 255.
std::vector<double> dynamic_map_values(DynamicMap map);

}  // namespace fettle
