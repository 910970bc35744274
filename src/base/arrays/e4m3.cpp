#include "base/arrays/e4m3.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fettle {

const std::vector<float>& e4m3_values() {
  static const std::vector<float> kValues = [] {
    std::vector<float> values;
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const float size = exponent == 0       ? std::ldexp(static_cast<float>(mantissa), -9)
                         : code % 128 == 127 ? std::numeric_limits<float>::quiet_NaN()
                                             : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      values.push_back(code < 128 ? size : -size);
    }
    return values;
  }();
  return kValues;
}

uint8_t e4m3_code(float value) {
  constexpr uint8_t kNan = 0x7f, kSign = 0x80;
  constexpr float kSmallestNormal = 0x1p-6F, kStepBelow = 0x1p-9F;
  if (std::isnan(value)) return kNan;
  const uint8_t sign = std::signbit(value) ? kSign : 0;
  const float size = std::min(std::abs(value), kLargestE4m3);
  // A subnormal value is its code times kStepBelow.
  if (size < kSmallestNormal) return sign | static_cast<uint8_t>(std::nearbyint(size / kStepBelow));
  constexpr int kDropped = 23 - 3;            // bits of f32's mantissa that e4m3 lacks
  constexpr uint32_t kBias = (127 - 7) << 3;  // exponent biases: 127 in f32, 7 in e4m3; mantissa of e4m3: 3 bits
  const auto bits = std::bit_cast<uint32_t>(size);
  const uint32_t half = (1U << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return sign | static_cast<uint8_t>(((bits + half) >> kDropped) - kBias);
}

}  // namespace fettle
