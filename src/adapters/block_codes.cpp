#include "adapters/block_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "adapters/dynamic_map.h"
#include "base/error.h"

namespace fettle {
namespace {

constexpr int64_t kBlock = Quantisation::kBlock, kNestedBlock = Quantisation::kNestedBlock;
constexpr float kSmallest = 1e-38f;  // smallest divisor, for blocks whose absmax is 0

// The 16 codes in the ascending order of their values, and the midpoints between neighbouring values.
struct Ordered {
  std::array<float, 15> bounds;
  std::array<uint8_t, 16> codes;
};

Ordered ordered(const std::vector<float>& values) {
  Ordered out;
  std::iota(out.codes.begin(), out.codes.end(), uint8_t{0});
  std::ranges::stable_sort(out.codes, [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
  for (size_t i = 0; i < 15; ++i) out.bounds[i] = (values[out.codes[i]] + values[out.codes[i + 1]]) / 2;
  return out;
}

const Ordered& ordered(Quantisation::Type type) {
  static const Ordered nf4 = ordered(values_of(Quantisation::Type::kNf4));
  static const Ordered fp4 = ordered(values_of(Quantisation::Type::kFp4));
  return type == Quantisation::Type::kNf4 ? nf4 : fp4;
}

float largest(std::span<const float> values) {
  float out = 0;
  for (float x : values) out = std::max(out, std::abs(x));
  return out;
}

}  // namespace

const std::vector<float>& values_of(Quantisation::Type type) {
  // bitsandbytes' table: quantiles of a normal distribution, scaled to [-1, 1]. Seven values are below zero and eight
  // above.
  static const std::vector<float> nf4{-1.0f,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0.0f,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1.0f};
  // bitsandbytes' codes: a sign bit, and three bits for one of eight magnitudes. The values are divided by the largest
  // one, 12.
  static const std::vector<float> fp4 = [] {
    std::vector<float> out;
    for (float sign : {1.0f, -1.0f})
      for (float value : {0.0f, 0.0625f, 8.0f, 12.0f, 4.0f, 6.0f, 2.0f, 3.0f}) out.push_back(sign * value / 12);
    return out;
  }();
  static const std::vector<float> e2m1{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                       -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  if (type == Quantisation::Type::kMxfp4) return e2m1;
  if (type == Quantisation::Type::kNf4) return nf4;
  internal_check(type == Quantisation::Type::kFp4, "values_of: the type has no table of 16 values");
  return fp4;
}

const std::vector<float>& mxfp4_scales() {
  static const std::vector<float> scales = [] {
    std::vector<float> out(256);
    for (int i = 0; i < 256; ++i) out[static_cast<size_t>(i)] = std::ldexp(1.0f, i - 127);
    return out;
  }();
  return scales;
}

const std::vector<float>& nested_values() {
  static const std::vector<double> exact = dynamic_map_values(DynamicMap::kSigned);
  static const std::vector<float> map(exact.begin(), exact.end());
  return map;
}

void quantise_blocks(Quantisation::Type type, std::span<const float> values, std::byte* codes, float* absmax) {
  const Ordered& order = ordered(type);
  for (size_t first = 0; first < values.size(); first += kBlock, codes += kBlock / 2) {
    const std::span<const float> block = values.subspan(first, std::min<size_t>(kBlock, values.size() - first));
    const float most = largest(block), inverse = 1 / std::max(most, kSmallest);
    *absmax++ = most;
    float scaled[kBlock] = {};
    for (size_t i = 0; i < block.size(); ++i) scaled[i] = std::clamp(block[i] * inverse, -1.0f, 1.0f);
    int32_t passed[kBlock] = {};  // for each element, how many midpoints lie below it
    for (float bound : order.bounds)
      for (int64_t i = 0; i < kBlock; ++i) passed[i] += scaled[i] > bound ? 1 : 0;
    for (int64_t i = 0; i < kBlock / 2; ++i)
      codes[i] = static_cast<std::byte>(order.codes[passed[2 * i]] << 4 | order.codes[passed[2 * i + 1]]);
  }
}

NestedAbsmax quantise_absmax(std::span<const float> absmax) {
  static const std::vector<float> bounds = [] {
    const std::vector<float>& map = nested_values();
    std::vector<float> out;
    for (size_t i = 0; i + 1 < map.size(); ++i) out.push_back((map[i] + map[i + 1]) / 2);
    return out;
  }();
  NestedAbsmax out;
  const double sum = std::accumulate(absmax.begin(), absmax.end(), 0.0);
  out.offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  out.codes.reserve(absmax.size());
  std::vector<float> block;
  for (size_t first = 0; first < absmax.size(); first += kNestedBlock) {
    block.clear();
    for (float x : absmax.subspan(first, std::min<size_t>(kNestedBlock, absmax.size() - first)))
      block.push_back(x - out.offset);
    const float most = largest(block), inverse = 1 / std::max(most, kSmallest);
    out.absmax.push_back(most);
    for (float x : block)
      out.codes.push_back(static_cast<uint8_t>(std::ranges::lower_bound(bounds, std::clamp(x * inverse, -1.0f, 1.0f)) -
                                               bounds.begin()));
  }
  return out;
}

void dequantise_absmax(const NestedAbsmax& nested, int64_t first, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t at = static_cast<size_t>(first) + i;
    out[i] = nested_values()[nested.codes[at]] * nested.absmax[at / kNestedBlock] + nested.offset;
  }
}

void quantise_rows(std::span<const float> values, int64_t columns, int8_t* codes, float* absmax) {
  for (size_t first = 0; first < values.size(); first += static_cast<size_t>(columns)) {
    const std::span<const float> row = values.subspan(first, static_cast<size_t>(columns));
    const float most = largest(row), factor = 127 / std::max(most, kSmallest);
    *absmax++ = most;
    for (float x : row) *codes++ = static_cast<int8_t>(std::nearbyint(x * factor));
  }
}

}  // namespace fettle
