#include "checkpoint/gguf/block_encoders.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/arrays/host_array.h"

namespace fettle {
namespace {

constexpr int kInBlock = 32;

void put_half(float value, uint8_t* at) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

// Returns the code of a value. `scaled` is the value divided by the block's scale and shifted so that codes begin at 0.
int code_of(float scaled, int largest) {
  // In a block of denormal values, 1 / scale is infinite, so `scaled` may be NaN. NaN gets code 0.
  if (!(scaled > 0)) return 0;
  return scaled >= static_cast<float>(largest) ? largest : static_cast<int>(scaled);
}

// Returns 1 / scale; 0 for a block of zeros.
float inverse_of(float scale) {
  return scale == 0 ? 0 : 1 / scale;
}

// Writes the low four bits of the elements i and i + 16 to the low and the high half of byte i.
void put_low_bits(const int* codes, uint8_t* at) {
  for (int i = 0; i < kInBlock / 2; ++i)
    at[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + kInBlock / 2] & 15) << 4);
}

void put_fifth_bits(const int* codes, uint8_t* at) {
  uint32_t bits = 0;
  for (int i = 0; i < kInBlock; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(at, &bits, sizeof bits);
}

// Writes codes 0 to 2 * half - 1. The code `half` means the value 0. The value of largest magnitude gets code 0.
// Returns the scale.
float symmetric_codes(const float* values, int half, int* codes) {
  float farthest = 0;
  for (int i = 0; i < kInBlock; ++i)
    if (std::abs(values[i]) > std::abs(farthest)) farthest = values[i];
  const float scale = farthest / static_cast<float>(-half), inverse = inverse_of(scale);
  for (int i = 0; i < kInBlock; ++i)
    codes[i] = code_of(values[i] * inverse + (static_cast<float>(half) + 0.5f), 2 * half - 1);
  return scale;
}

struct Range {
  float scale, least;
};

// Writes codes 0 ... largest: 0 for the smallest value, `largest` for the largest value. Returns the scale and the
// smallest value.
Range range_codes(const float* values, int largest, int* codes) {
  const auto [low, high] = std::minmax_element(values, values + kInBlock);
  const float scale = (*high - *low) / static_cast<float>(largest), inverse = inverse_of(scale);
  for (int i = 0; i < kInBlock; ++i) codes[i] = code_of((values[i] - *low) * inverse + 0.5f, largest);
  return {scale, *low};
}

}  // namespace

void encode_f32(const float* values, uint8_t* block) {
  std::memcpy(block, values, sizeof(float));
}

void encode_f16(const float* values, uint8_t* block) {
  put_half(*values, block);
}

void encode_bf16(const float* values, uint8_t* block) {
  const uint16_t bits = f32_to_bf16(*values);
  std::memcpy(block, &bits, sizeof bits);
}

void encode_q8_0(const float* values, uint8_t* block) {
  float farthest = 0;
  for (int i = 0; i < kInBlock; ++i) farthest = std::max(farthest, std::abs(values[i]));
  const float scale = farthest / 127, inverse = inverse_of(scale);
  put_half(scale, block);
  for (int i = 0; i < kInBlock; ++i) {
    const float rounded = std::isfinite(inverse) ? std::round(values[i] * inverse) : 0;
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(rounded, -127.0f, 127.0f)));
  }
}

void encode_q4_0(const float* values, uint8_t* block) {
  int codes[kInBlock];
  put_half(symmetric_codes(values, 8, codes), block);
  put_low_bits(codes, block + 2);
}

void encode_q4_1(const float* values, uint8_t* block) {
  int codes[kInBlock];
  const Range range = range_codes(values, 15, codes);
  put_half(range.scale, block);
  put_half(range.least, block + 2);
  put_low_bits(codes, block + 4);
}

void encode_q5_0(const float* values, uint8_t* block) {
  int codes[kInBlock];
  put_half(symmetric_codes(values, 16, codes), block);
  put_fifth_bits(codes, block + 2);
  put_low_bits(codes, block + 6);
}

void encode_q5_1(const float* values, uint8_t* block) {
  int codes[kInBlock];
  const Range range = range_codes(values, 31, codes);
  put_half(range.scale, block);
  put_half(range.least, block + 2);
  put_fifth_bits(codes, block + 4);
  put_low_bits(codes, block + 8);
}

float mxfp4_half_scale(uint8_t exponent) {
  return std::ldexp(1.0f, static_cast<int>(exponent) - 128);
}

void encode_mxfp4(const float* values, uint8_t* block) {
  float farthest = 0;
  for (int i = 0; i < kInBlock; ++i) farthest = std::max(farthest, std::abs(values[i]));
  constexpr int kBias = 127, kLargestPower = 2;  // the largest code is 1.5 * 2^2
  const float power = farthest > 0 ? std::floor(std::log2(farthest)) - kLargestPower + kBias : 0;
  block[0] = static_cast<uint8_t>(std::max(power, 0.0f));
  const float scale = mxfp4_half_scale(block[0]);
  int codes[kInBlock];
  for (int i = 0; i < kInBlock; ++i) {
    float least = std::numeric_limits<float>::infinity();
    for (int code = 0; code < 16; ++code) {
      const float error = std::abs(scale * static_cast<float>(kMxfp4Doubles[code]) - values[i]);
      if (error < least) least = error, codes[i] = code;
    }
  }
  put_low_bits(codes, block + 1);
}

}  // namespace fettle
