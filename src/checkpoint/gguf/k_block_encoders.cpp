#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/arrays/host_array.h"
#include "checkpoint/gguf/block_encoders.h"

namespace fettle {
namespace {

constexpr int kInLarge = 256;

// Writes the value as f16 and returns the rounded value.
float put_rounded(float value, uint8_t* at) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
  return f16_to_f32(bits);
}

// Returns the integer from 0 to `largest` that is nearest to the value. Compilers can vectorise this code.
int nearest_code(float value, float largest) {
  return static_cast<int>(std::min(std::max(value, 0.0f), largest) + 0.5f);
}

// A group's values are scale * code - offset, with scale and offset >= 0.
struct ScaleAndOffset {
  float scale = 0, offset = 0;
};

// Searches for the scale and the offset with the least squared error, weighted by `weights`. Tries several starting
// scales. For each, finds the nearest codes, and then the best scale and offset for these codes.
template <int kCount>
ScaleAndOffset find_range(const float* x, const float* weights, float largest) {
  float low = 0, high = x[0];
  for (int i = 0; i < kCount; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  if (!(high > low)) return {0, -low};
  float sum_w = 0, sum_x = 0, sum_xx = 0;
  for (int i = 0; i < kCount; ++i) sum_w += weights[i], sum_x += weights[i] * x[i], sum_xx += weights[i] * x[i] * x[i];
  ScaleAndOffset best{(high - low) / largest, -low};
  double least = std::numeric_limits<double>::infinity();
  // Tries the scales (high - low) / n for n from largest - 1 to largest + 1, in steps of 0.1. Step 0 (n = largest)
  // comes first, so that it wins when several steps are equally good.
  constexpr int kSteps = 10;
  for (int number = 0; number <= 2 * kSteps; ++number) {
    const int step = number <= kSteps ? number : kSteps - number;
    const float inverse = (largest + static_cast<float>(step) / kSteps) / (high - low);
    if (!std::isfinite(inverse)) break;
    float sum_q = 0, sum_qq = 0, sum_qx = 0;
    for (int i = 0; i < kCount; ++i) {
      const auto q = static_cast<float>(nearest_code((x[i] - low) * inverse, largest));
      const float wq = weights[i] * q;
      sum_q += wq, sum_qq += wq * q, sum_qx += wq * x[i];
    }
    const double w = sum_w, sx = sum_x, q = sum_q, qq = sum_qq, qx = sum_qx;
    const double determinant = w * qq - q * q;
    if (!(qq > 0)) continue;
    double scale = determinant > 0 ? (w * qx - sx * q) / determinant : 0;
    double offset = determinant > 0 ? (q * qx - qq * sx) / determinant : 0;
    if (!(determinant > 0) || offset < 0) offset = 0, scale = qx / qq;
    if (!(scale > 0)) continue;
    const double error =
        scale * scale * qq + offset * offset * w + sum_xx - 2 * scale * offset * q - 2 * scale * qx + 2 * offset * sx;
    if (error < 0.999999 * least) {
      least = std::max(error, 0.0);  // rounding can make the error of an exact fit slightly negative
      best = {static_cast<float>(scale), static_cast<float>(offset)};
    }
  }
  return best;
}

// Returns the weighted squared error of the nearest codes.
double error_of(const float* x, const float* weights, int count, float scale, float offset, float largest) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const float code = scale > 0 ? static_cast<float>(nearest_code((x[i] + offset) / scale, largest)) : 0;
    const double difference = scale * code - offset - x[i];
    sum += weights[i] * difference * difference;
  }
  return sum;
}

// Encodes the eight groups of 32 values of a Q4_K or Q5_K block. block[0, 16) gets two f16 units, one for the scales
// and one for the offsets, and then the scales and offsets (six bits each, in these units). `codes` gets the codes.
void encode_groups(const float* values, int largest, uint8_t* block, int* codes) {
  constexpr int kGroups = 8, kGroup = kInLarge / kGroups;
  std::array<ScaleAndOffset, kGroups> found;
  float most_scale = 0, most_offset = 0;
  float weights[kInLarge];
  for (int group = 0; group < kGroups; ++group) {
    const float* x = values + group * kGroup;
    float squares = 0;
    for (int i = 0; i < kGroup; ++i) squares += x[i] * x[i];
    const float mean = std::sqrt(squares / kGroup);
    float* weight = weights + group * kGroup;
    for (int i = 0; i < kGroup; ++i) weight[i] = mean + std::abs(x[i]);
    found[static_cast<size_t>(group)] = find_range<kGroup>(x, weight, static_cast<float>(largest));
    most_scale = std::max(most_scale, found[static_cast<size_t>(group)].scale);
    most_offset = std::max(most_offset, found[static_cast<size_t>(group)].offset);
  }
  const float unit = put_rounded(most_scale / 63, block), offset_unit = put_rounded(most_offset / 63, block + 2);
  uint8_t* packed = block + 4;
  std::memset(packed, 0, 12);
  for (int group = 0; group < kGroups; ++group) {
    const ScaleAndOffset& one = found[static_cast<size_t>(group)];
    // Rounding to six bits changes scale and offset, so a neighbour of the nearest pair may fit better.
    const int near_s = unit > 0 ? nearest_code(one.scale / unit, 63) : 0;
    const int near_m = offset_unit > 0 ? nearest_code(one.offset / offset_unit, 63) : 0;
    int s = near_s, m = near_m;
    double least = std::numeric_limits<double>::infinity();
    for (const int ds : {0, -1, 1})
      for (const int dm : {0, -1, 1}) {
        const int tried_s = std::clamp(near_s + ds, 0, 63), tried_m = std::clamp(near_m + dm, 0, 63);
        const double error =
            error_of(values + group * kGroup, weights + group * kGroup, kGroup, unit * static_cast<float>(tried_s),
                     offset_unit * static_cast<float>(tried_m), static_cast<float>(largest));
        if (error < least) least = error, s = tried_s, m = tried_m;
      }
    if (group < 4) {
      packed[group] |= static_cast<uint8_t>(s);
      packed[group + 4] |= static_cast<uint8_t>(m);
    } else {
      packed[group + 4] = static_cast<uint8_t>((s & 15) | (m & 15) << 4);
      packed[group - 4] |= static_cast<uint8_t>(s >> 4 << 6);
      packed[group] |= static_cast<uint8_t>(m >> 4 << 6);
    }
    const float scale = unit * static_cast<float>(s), offset = offset_unit * static_cast<float>(m);
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i)
      codes[i] = scale > 0 ? nearest_code((values[i] + offset) / scale, static_cast<float>(largest)) : 0;
  }
}

// Writes the low four bits of each group of 64 elements to 32 bytes.
void put_four_bits(const int* codes, uint8_t* at) {
  for (int i = 0; i < kInLarge; i += 64)
    for (int j = 0; j < 32; ++j)
      at[i / 2 + j] = static_cast<uint8_t>((codes[i + j] & 15) | (codes[i + 32 + j] & 15) << 4);
}

// Searches for the scale at which scale * code has the least squared error, weighted by weight(x). Codes are -half to
// half - 1. The sign of the scale is such that the value with the largest magnitude has a negative code.
template <typename Weight>
float find_scale(const float* x, int count, float half, Weight weight) {
  float farthest = 0;
  for (int i = 0; i < count; ++i)
    if (std::abs(x[i]) > std::abs(farthest)) farthest = x[i];
  if (farthest == 0) return 0;
  float best = farthest / -half;
  double most = -1;
  constexpr int kSteps = 9;
  for (int number = 0; number <= 2 * kSteps; ++number) {
    const int step =
        number <= kSteps ? number : kSteps - number;  // step 0, which is exact for equal values, comes first
    const float inverse = -(half + 0.1f * static_cast<float>(step)) / farthest;
    if (!std::isfinite(inverse)) break;
    double product = 0, square = 0;
    for (int i = 0; i < count; ++i) {
      const float code = std::clamp(std::nearbyint(x[i] * inverse), -half, half - 1);
      const double w = weight(x[i]);
      product += w * code * x[i], square += w * code * code;
    }
    if (square > 0 && product * product > 1.000001 * most * square) {
      most = product * product / square;
      best = static_cast<float>(product / square);
    }
  }
  return best;
}

// Writes the low two bits of each code. A byte has four codes: those of the elements i, i + 32, i + 64 and i + 96 of
// one half of the block.
void put_two_bits(const int* codes, uint8_t* at) {
  std::memset(at, 0, kInLarge / 4);
  for (int i = 0; i < kInLarge; ++i)
    at[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((codes[i] & 3) << (i % 128 / 32 * 2));
}

}  // namespace

void encode_q2_k(const float* values, uint8_t* block) {
  constexpr int kGroups = 16, kGroup = kInLarge / kGroups;
  constexpr float kLargest = 3, kLargestScale = 15;
  std::array<ScaleAndOffset, kGroups> found;
  float weights[kInLarge], most_scale = 0, most_offset = 0;
  for (int group = 0; group < kGroups; ++group) {
    const float* x = values + group * kGroup;
    float squares = 0;
    for (int i = 0; i < kGroup; ++i) squares += x[i] * x[i];
    const float mean = std::sqrt(squares / kGroup);
    for (int i = 0; i < kGroup; ++i) weights[group * kGroup + i] = mean + std::abs(x[i]);
    ScaleAndOffset& one = found[static_cast<size_t>(group)];
    one = find_range<kGroup>(x, weights + group * kGroup, kLargest);
    most_scale = std::max(most_scale, one.scale);
    most_offset = std::max(most_offset, one.offset);
  }
  const float unit = put_rounded(most_scale / kLargestScale, block + 80),
              offset_unit = put_rounded(most_offset / kLargestScale, block + 82);
  int codes[kInLarge];
  for (int group = 0; group < kGroups; ++group) {
    const ScaleAndOffset& one = found[static_cast<size_t>(group)];
    const float* x = values + group * kGroup;
    const int near_s = unit > 0 ? nearest_code(one.scale / unit, kLargestScale) : 0;
    const int near_m = offset_unit > 0 ? nearest_code(one.offset / offset_unit, kLargestScale) : 0;
    int s = near_s, m = near_m;
    double least = std::numeric_limits<double>::infinity();
    for (const int ds : {0, -1, 1})
      for (const int dm : {0, -1, 1}) {
        const int tried_s = std::clamp(near_s + ds, 0, 15), tried_m = std::clamp(near_m + dm, 0, 15);
        const double error = error_of(x, weights + group * kGroup, kGroup, unit * static_cast<float>(tried_s),
                                      offset_unit * static_cast<float>(tried_m), kLargest);
        if (error < least) least = error, s = tried_s, m = tried_m;
      }
    block[group] = static_cast<uint8_t>(s | m << 4);
    const float scale = unit * static_cast<float>(s), offset = offset_unit * static_cast<float>(m);
    for (int i = 0; i < kGroup; ++i)
      codes[group * kGroup + i] = scale > 0 ? nearest_code((x[i] + offset) / scale, kLargest) : 0;
  }
  put_two_bits(codes, block + 16);
}

void encode_q3_k(const float* values, uint8_t* block) {
  constexpr int kGroups = 16, kGroup = kInLarge / kGroups;
  constexpr float kHalf = 4, kHalfScale = 32;
  std::array<float, kGroups> found;
  float farthest = 0;
  for (int group = 0; group < kGroups; ++group) {
    const float scale = find_scale(values + group * kGroup, kGroup, kHalf, [](double x) { return std::abs(x); });
    found[static_cast<size_t>(group)] = scale;
    if (std::abs(scale) > std::abs(farthest)) farthest = scale;
  }
  std::memset(block, 0, 108);
  const float unit = put_rounded(farthest / -kHalfScale, block + 108);
  int codes[kInLarge];
  for (int group = 0; group < kGroups; ++group) {
    const float* x = values + group * kGroup;
    const auto code_of = [&](float value, float scale) {
      return scale == 0 ? 0 : std::clamp(std::nearbyint(value / scale), -kHalf, kHalf - 1);
    };
    // Rounding to six bits changes the scale, so a neighbour of the nearest scale may fit better.
    const float near = unit == 0 ? 0 : std::nearbyint(found[static_cast<size_t>(group)] / unit);
    float s = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const float step : {0.0f, -1.0f, 1.0f}) {
      const float tried = std::clamp(near + step, -kHalfScale, kHalfScale - 1);
      double error = 0;
      for (int i = 0; i < kGroup; ++i) {
        const double difference = unit * tried * code_of(x[i], unit * tried) - x[i];
        error += std::abs(x[i]) * difference * difference;
      }
      if (error < least) least = error, s = tried;
    }
    const float scale = unit * s;
    const int stored = static_cast<int>(s) + 32;
    uint8_t* packed = block + 96;
    packed[group % 8] |= static_cast<uint8_t>((stored & 15) << (group / 8 * 4));
    packed[8 + group % 4] |= static_cast<uint8_t>((stored >> 4) << (group / 4 * 2));
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      codes[i] = static_cast<int>(code_of(values[i], scale)) + 4;
      block[i % 32] |= static_cast<uint8_t>((codes[i] >> 2) << (i / 32));
    }
  }
  put_two_bits(codes, block + 32);
}

void encode_q4_k(const float* values, uint8_t* block) {
  int codes[kInLarge];
  encode_groups(values, 15, block, codes);
  put_four_bits(codes, block + 16);
}

void encode_q5_k(const float* values, uint8_t* block) {
  int codes[kInLarge];
  encode_groups(values, 31, block, codes);
  uint8_t* high = block + 16;
  std::memset(high, 0, 32);
  for (int i = 0; i < kInLarge; ++i) high[i % 32] |= static_cast<uint8_t>((codes[i] >> 4) << (i / 32));
  put_four_bits(codes, block + 48);
}

void encode_q6_k(const float* values, uint8_t* block) {
  constexpr int kGroups = 16, kGroup = kInLarge / kGroups;
  std::array<float, kGroups> found;
  float farthest = 0;
  for (int group = 0; group < kGroups; ++group) {
    const float scale = find_scale(values + group * kGroup, kGroup, 32, [](double x) { return x * x; });
    found[static_cast<size_t>(group)] = scale;
    if (std::abs(scale) > std::abs(farthest)) farthest = scale;
  }
  std::memset(block, 0, 192);
  uint8_t *low = block, *high = block + 128;
  const float unit = put_rounded(farthest / -128, block + 208);
  for (int group = 0; group < kGroups; ++group) {
    const float wanted = unit == 0 ? 0 : std::nearbyint(found[static_cast<size_t>(group)] / unit);
    const float s = std::clamp(wanted, -128.0f, 127.0f), scale = unit * s;
    block[192 + group] = static_cast<uint8_t>(static_cast<int8_t>(s));
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      const float code = scale == 0 ? 0 : std::clamp(std::nearbyint(values[i] / scale), -32.0f, 31.0f);
      const int six = static_cast<int>(code) + 32, part = i / 128, at = i % 128;
      low[part * 64 + at % 64] |= static_cast<uint8_t>((six & 15) << (at / 64 * 4));
      high[part * 32 + at % 32] |= static_cast<uint8_t>((six >> 4) << (at / 32 * 2));
    }
  }
}

}  // namespace fettle
