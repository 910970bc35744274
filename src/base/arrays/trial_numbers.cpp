#include "base/arrays/trial_numbers.h"

#include <cmath>

namespace fettle {

HostArray trial_numbers(const Shape& shape, uint32_t seed, float scale) {
  HostArray out(shape);
  uint32_t state = seed;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    state = state * 1664525u + 1013904223u;  // a linear congruential generator (Numerical Recipes)
    store_float(out.data(), shape.dtype, i, (static_cast<float>(state >> 8) / 8388608.0F - 1) * scale);
  }
  return out;
}

std::vector<double> doubles(const HostArray& array) {
  std::vector<double> out;
  for (int64_t i = 0; i < array.shape().elements(); ++i)
    out.push_back(load_float(array.data(), array.shape().dtype, i));
  return out;
}

double relative_distance(std::span<const double> got, std::span<const double> wanted) {
  double error = 0, length = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = got[i] - wanted[i];
    error += difference * difference;
    length += wanted[i] * wanted[i];
  }
  return error == 0 ? 0 : std::sqrt(error / length);
}

}  // namespace fettle
