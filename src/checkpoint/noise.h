// Defines uniform_noise and normal_noise: random numbers that depend only on a key and an index, so that threads and
// devices may compute them in any order.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace fettle {

// The last step of the generator SplitMix64: spreads changes of `x` over all bits.
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Returns a number in (0, 1].
inline double uniform_noise(uint64_t key, uint64_t index) {
  return static_cast<double>((mix_bits(key + index * 0x9e3779b97f4a7c15ull) >> 11) + 1) * 0x1p-53;
}

// Returns a number from the normal distribution with mean 0 and standard deviation 1.
inline double normal_noise(uint64_t key, uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(uniform_noise(key, 2 * index)));
  return radius * std::cos(2 * std::numbers::pi * uniform_noise(key, 2 * index + 1));
}

}  // namespace fettle
