#include "base/arrays/host_array.h"

#include <bit>
#include <cstdlib>
#include <new>

namespace fettle {

void HostArray::Free::operator()(std::byte* p) const {
  std::free(p);
}

HostArray::HostArray(Shape shape) : shape_(std::move(shape)) {
  const size_t size = (static_cast<size_t>(shape_.bytes()) + 63) / 64 * 64;
  void* p = std::aligned_alloc(64, size == 0 ? 64 : size);
  if (p == nullptr) throw std::bad_alloc();
  bytes_.reset(static_cast<std::byte*>(p));
}

HostArray HostArray::zeros(Shape shape) {
  HostArray array(std::move(shape));
  std::memset(array.data(), 0, array.bytes());
  return array;
}

HostArray HostArray::clone() const {
  HostArray copy(shape_);
  std::memcpy(copy.data(), data(), bytes());
  return copy;
}

HostArray HostArray::to(DType dtype) const {
  if (dtype == shape_.dtype) return clone();
  HostArray out(shape_.with_dtype(dtype));
  for (int64_t i = 0, n = shape_.elements(); i < n; ++i)
    store_float(out.data(), dtype, i, load_float(data(), shape_.dtype, i));
  return out;
}

float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t f32_to_bf16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// GCC 11 has no _Float16 in C++. So this code shifts exponent and fraction to their bit positions in f32. The factor
// 2^112 corrects the exponent's bias and turns subnormal numbers into normal ones.
float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 1u << 22 : 0));
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), rest = bits & 0x7fffffff;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (rest >> 13 & 0x3ff));
  if (rest >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more, which is infinity in f16
  // The result is subnormal in f16: a multiple of 2^-24. The last bit of an f32 number from 0.5 to 1 is 2^-24, so the
  // addition of 0.5 rounds to such a multiple.
  if (rest < 0x38800000) {
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

namespace {
template <typename T>
T read(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void write(std::byte* data, int64_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}
}  // namespace

float load_float(const std::byte* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32: return read<float>(data, index);
    case DType::kBF16: return bf16_to_f32(read<uint16_t>(data, index));
    case DType::kF16: return f16_to_f32(read<uint16_t>(data, index));
    case DType::kF64: return static_cast<float>(read<double>(data, index));
    default: throw InternalError("load_float: {} is not a float dtype", stablehlo_name(dtype));
  }
}

void store_float(std::byte* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32: return write(data, index, value);
    case DType::kBF16: return write(data, index, f32_to_bf16(value));
    case DType::kF16: return write(data, index, f32_to_f16(value));
    case DType::kF64: return write(data, index, static_cast<double>(value));
    default: throw InternalError("store_float: {} is not a float dtype", stablehlo_name(dtype));
  }
}

}  // namespace fettle
