#include "checkpoint/convert.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/arrays/host_array.h"
#include "base/error.h"

namespace fettle {
namespace {

template <typename From, typename To, typename Convert>
void convert(const std::byte* source, std::byte* target, int64_t count, Convert one) {
  for (int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    const To to = one(from);
    std::memcpy(target + i * sizeof(To), &to, sizeof(To));
  }
}

// On processors without f16 instructions, a table is faster than converting bit by bit.
const std::vector<float>& f16_values() {
  static const std::vector<float> kValues = [] {
    std::vector<float> values(1 << 16);
    for (size_t bits = 0; bits < values.size(); ++bits) values[bits] = f16_to_f32(static_cast<uint16_t>(bits));
    return values;
  }();
  return kValues;
}

void to_f32(const std::byte* source, DType from, std::byte* target, int64_t count) {
  switch (from) {
    case DType::kF16:
      return convert<uint16_t, float>(source, target, count, [&t = f16_values()](uint16_t v) { return t[v]; });
    case DType::kBF16:
      return convert<uint16_t, uint32_t>(source, target, count, [](uint16_t v) { return uint32_t{v} << 16; });
    case DType::kF64:
      return convert<double, float>(source, target, count, [](double v) { return static_cast<float>(v); });
    case DType::kF32: return convert<float, float>(source, target, count, [](float v) { return v; });
    default: throw InternalError("convert_elements: from {}", stablehlo_name(from));
  }
}

void from_f32(const std::byte* source, std::byte* target, DType to, int64_t count) {
  switch (to) {
    case DType::kF16: return convert<float, uint16_t>(source, target, count, f32_to_f16);
    case DType::kBF16:
      return convert<uint32_t, uint16_t>(source, target, count, [](uint32_t v) {
        const uint32_t rounded = (v + 0x7fff + (v >> 16 & 1)) >> 16;
        return static_cast<uint16_t>((v & 0x7fffffff) > 0x7f800000 ? (v >> 16 | 0x40) : rounded);
      });
    case DType::kF64:
      return convert<float, double>(source, target, count, [](float v) { return static_cast<double>(v); });
    case DType::kF32: return convert<float, float>(source, target, count, [](float v) { return v; });
    default: throw InternalError("convert_elements: to {}", stablehlo_name(to));
  }
}

}  // namespace

void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count) {
  if (from == to) {
    if (count > 0) std::memcpy(target, source, static_cast<size_t>(count * byte_size(from)));
    return;
  }
  internal_check(is_float(from) && is_float(to), "convert_elements: {} to {} is not a conversion between floats",
                 stablehlo_name(from), stablehlo_name(to));
  if (to == DType::kF32) return to_f32(source, from, target, count);
  if (from == DType::kF32) return from_f32(source, target, to, count);
  constexpr int64_t kBlock = 1024;
  std::array<std::byte, kBlock * sizeof(float)> block;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    to_f32(source + at * byte_size(from), from, block.data(), n);
    from_f32(block.data(), target + at * byte_size(to), to, n);
  }
}

}  // namespace fettle
