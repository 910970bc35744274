// Defines random numbers that depend only on their arguments. They are the same on every platform, and threads and
// devices may compute them in any order. They are not for secrets.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace fettle {

// Returns x with its bits mixed by the last step of the generator SplitMix64.
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// Returns one number for two.
inline uint64_t mix_bits(uint64_t a, uint64_t b) {
  return mix_bits(a + 0x9e3779b97f4a7c15ull * (b + 1));
}

// Returns a number in [0, 1) with 53 random bits.
inline double uniform(uint64_t seed, uint64_t index) {
  return static_cast<double>(mix_bits(seed, index) >> 11) * 0x1p-53;
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

// Returns the FNV-1a hash of the text. Keys are made from such hashes.
inline uint32_t fnv1a(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace fettle
