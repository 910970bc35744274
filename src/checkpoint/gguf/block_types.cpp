#include "checkpoint/gguf/block_types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/arrays/host_array.h"
#include "checkpoint/gguf/block_encoders.h"

namespace fettle {
namespace {

constexpr int kSmallBlock = 32, kLargeBlock = 256;

float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

void decode_f32(const uint8_t* block, float* out) {
  std::memcpy(out, block, sizeof(float));
}

void decode_f16(const uint8_t* block, float* out) {
  *out = half_at(block);
}

void decode_bf16(const uint8_t* block, float* out) {
  uint16_t bits;
  std::memcpy(&bits, block, sizeof bits);
  *out = bf16_to_f32(bits);
}

// The low four bits of the 16 bytes of codes are elements 0 to 15, the high four bits are elements 16 to 31.
void decode_q4_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    out[i] = scale * static_cast<float>((block[2 + i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

void decode_q4_1(const uint8_t* block, float* out) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    out[i] = scale * static_cast<float>(block[4 + i] & 15) + least;
    out[i + 16] = scale * static_cast<float>(block[4 + i] >> 4) + least;
  }
}

// Returns the five-bit code of element i. Its low four bits are in `low`, its fifth bit is bit i of `high`.
int five_bits(const uint8_t* low, uint32_t high, int i) {
  const int four = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
  return four | static_cast<int>((high >> i & 1) << 4);
}

void decode_q5_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  uint32_t high;
  std::memcpy(&high, block + 2, sizeof high);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = scale * static_cast<float>(five_bits(block + 6, high, i) - 16);
}

void decode_q5_1(const uint8_t* block, float* out) {
  const float scale = half_at(block), least = half_at(block + 2);
  uint32_t high;
  std::memcpy(&high, block + 4, sizeof high);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = scale * static_cast<float>(five_bits(block + 8, high, i)) + least;
}

void decode_q8_0(const uint8_t* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

// A block has 16 scales and offsets of 4 bits, 256 elements of 2 bits, the scale of the scales, and the scale of the
// offsets.
void decode_q2_k(const uint8_t* block, float* out) {
  const uint8_t *scales = block, *codes = block + 16;
  const float scale = half_at(block + 80), least = half_at(block + 82);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int group = i / 16;
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const float of_group = scale * static_cast<float>(scales[group] & 15);
    const float offset = least * static_cast<float>(scales[group] >> 4);
    out[i] = of_group * static_cast<float>(code) - offset;
  }
}

// A block has the third bit of each element, the low two bits of each element, 16 scales of 6 bits, and the scale of
// the scales. A third bit of 0 makes the element's code smaller by 4.
void decode_q3_k(const uint8_t* block, float* out) {
  const uint8_t *high = block, *codes = block + 32, *packed = block + 96;
  const float scale = half_at(block + 108);
  std::array<float, 16> of_group;
  for (int group = 0; group < 16; ++group) {
    const int low_bits = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high_bits = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    of_group[static_cast<size_t>(group)] = scale * static_cast<float>((low_bits | high_bits << 4) - 32);
  }
  for (int i = 0; i < kLargeBlock; ++i) {
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int less = (high[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4;
    out[i] = of_group[static_cast<size_t>(i / 16)] * static_cast<float>(code - less);
  }
}

// A block of Q4_K or Q5_K has eight groups. Their scales and offsets have 6 bits each and are packed into 12 bytes.
struct GroupScales {
  std::array<float, 8> scale, offset;

  explicit GroupScales(const uint8_t* block) {
    const float of_scales = half_at(block), of_offsets = half_at(block + 2);
    const uint8_t* packed = block + 4;
    for (size_t i = 0; i < 8; ++i) {
      int s = packed[i] & 63, m = packed[i + 4] & 63;
      if (i >= 4) {
        s = (packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4);
        m = packed[i + 4] >> 4 | (packed[i] >> 6 << 4);
      }
      scale[i] = of_scales * static_cast<float>(s);
      offset[i] = of_offsets * static_cast<float>(m);
    }
  }
};

void decode_q4_k(const uint8_t* block, float* out) {
  const GroupScales groups(block);
  const uint8_t* codes = block + 16;
  for (int i = 0; i < kLargeBlock; ++i) {
    const auto group = static_cast<size_t>(i / 32);
    const int code = codes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    out[i] = groups.scale[group] * static_cast<float>(code) - groups.offset[group];
  }
}

void decode_q5_k(const uint8_t* block, float* out) {
  const GroupScales groups(block);
  const uint8_t *high = block + 16, *codes = block + 48;
  for (int i = 0; i < kLargeBlock; ++i) {
    const auto group = static_cast<size_t>(i / 32);
    const int four = codes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    const int code = four | (high[i % 32] >> (i / 32) & 1) << 4;
    out[i] = groups.scale[group] * static_cast<float>(code) - groups.offset[group];
  }
}

void decode_q6_k(const uint8_t* block, float* out) {
  const uint8_t *low = block, *high = block + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  const float scale = half_at(block + 208);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int part = i / 128, at = i % 128;
    const int four = low[part * 64 + at % 64] >> (at / 64 * 4) & 15;
    const int two = high[part * 32 + at % 32] >> (at / 32 * 2) & 3;
    const float of_group = scale * static_cast<float>(scales[i / 16]);
    out[i] = of_group * static_cast<float>((four | two << 4) - 32);
  }
}

// A block has a scale and 32 elements of 4 bits (e2m1, OCP Microscaling Formats). The scale is a power of two, stored
// as its exponent.
void decode_mxfp4(const uint8_t* block, float* out) {
  const float scale = mxfp4_half_scale(block[0]);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    out[i] = scale * static_cast<float>(kMxfp4Doubles[block[1 + i] & 15]);
    out[i + 16] = scale * static_cast<float>(kMxfp4Doubles[block[1 + i] >> 4]);
  }
}

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4, decode_f32, encode_f32},
    {1, "F16", 1, 2, decode_f16, encode_f16},
    {2, "Q4_0", 32, 18, decode_q4_0, encode_q4_0},
    {3, "Q4_1", 32, 20, decode_q4_1, encode_q4_1},
    {6, "Q5_0", 32, 22, decode_q5_0, encode_q5_0},
    {7, "Q5_1", 32, 24, decode_q5_1, encode_q5_1},
    {8, "Q8_0", 32, 34, decode_q8_0, encode_q8_0},
    {9, "Q8_1", 32, 36, nullptr},
    {10, "Q2_K", 256, 84, decode_q2_k, encode_q2_k},
    {11, "Q3_K", 256, 110, decode_q3_k, encode_q3_k},
    {12, "Q4_K", 256, 144, decode_q4_k, encode_q4_k},
    {13, "Q5_K", 256, 176, decode_q5_k, encode_q5_k},
    {14, "Q6_K", 256, 210, decode_q6_k, encode_q6_k},
    {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},
    {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},
    {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},
    {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},
    {27, "I64", 1, 8, nullptr},
    {28, "F64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},
    {30, "BF16", 1, 2, decode_bf16, encode_bf16},
    {31, "Q4_0_4_4", 32, 18, nullptr},
    {32, "Q4_0_4_8", 32, 18, nullptr},
    {33, "Q4_0_8_8", 32, 18, nullptr},
    {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},
    {39, "MXFP4", 32, 17, decode_mxfp4, encode_mxfp4},
    {40, "NVFP4", 64, 36, nullptr},
    {41, "Q1_0", 128, 18, nullptr},
};

}  // namespace

const BlockType* find_block_type(uint32_t number) {
  for (const BlockType& type : kTypes)
    if (type.number == number) return &type;
  return nullptr;
}

const BlockType* find_block_type(std::string_view name) {
  for (const BlockType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

void decode_blocks(const BlockType& type, const std::byte* data, int64_t first, int64_t count, float* out) {
  std::array<float, kLargeBlock> values;
  while (count > 0) {
    const int64_t skip = first % type.elements, some = std::min(count, type.elements - skip);
    const auto* block = reinterpret_cast<const uint8_t*>(data) + first / type.elements * type.bytes;
    if (some == type.elements) {
      type.decode(block, out);
    } else {
      type.decode(block, values.data());
      std::copy_n(values.begin() + skip, some, out);
    }
    first += some, out += some, count -= some;
  }
}

void encode_blocks(const BlockType& type, const float* values, int64_t count, std::byte* out) {
  auto* block = reinterpret_cast<uint8_t*>(out);
  for (int64_t first = 0; first < count; first += type.elements, block += type.bytes)
    type.encode(values + first, block);
}

}  // namespace fettle
