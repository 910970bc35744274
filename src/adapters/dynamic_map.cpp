#include "adapters/dynamic_map.h"

#include <cmath>

namespace fettle {

Decade decade(int i, DynamicMap map) {
  const double count = std::exp2(map == DynamicMap::kSigned ? i : i + 1), top = std::pow(10.0, i - (kDecades - 1));
  const double step = top * 0.9 / count;
  return {top * 0.1 + step / 2, step, count};
}

std::vector<double> dynamic_map_values(DynamicMap map) {
  std::vector<double> positive{0};
  for (int i = 0; i < kDecades; ++i)
    for (int n = 0; n < static_cast<int>(decade(i, map).count); ++n)
      positive.push_back(decade(i, map).first + n * decade(i, map).step);
  std::vector<double> out;
  if (map == DynamicMap::kSigned)
    for (size_t i = positive.size() - 1; i > 0; --i) out.push_back(-positive[i]);
  out.insert(out.end(), positive.begin(), positive.end());
  out.push_back(1);
  return out;
}

}  // namespace fettle
