// Defines HostArray: a dense row-major array in this process's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/arrays/shape.h"
#include "base/error.h"

namespace fettle {

// Owns its bytes, which are 64-byte aligned. Move-only.
class HostArray {
 public:
  HostArray() = default;
  explicit HostArray(Shape shape);  // uninitialised
  static HostArray zeros(Shape shape);
  template <typename T>
  static HostArray from(Shape shape, const std::vector<T>& values) {
    internal_check(static_cast<int64_t>(values.size() * sizeof(T)) == shape.bytes(),
                   "HostArray::from: {} values do not fit {}", values.size(), shape.to_string());
    HostArray array(std::move(shape));
    std::memcpy(array.data(), values.data(), values.size() * sizeof(T));
    return array;
  }

  const Shape& shape() const { return shape_; }
  std::byte* data() { return bytes_.get(); }
  const std::byte* data() const { return bytes_.get(); }
  int64_t bytes() const { return shape_.bytes(); }
  // Returns the elements as type T. T must have the size of the dtype.
  template <typename T>
  std::span<T> as() {
    internal_check(sizeof(T) == static_cast<size_t>(byte_size(shape_.dtype)),
                   "HostArray::as: T has another width than the elements of {}", shape_.to_string());
    return {reinterpret_cast<T*>(data()), static_cast<size_t>(shape_.elements())};
  }
  template <typename T>
  std::span<const T> as() const {
    return const_cast<HostArray*>(this)->as<T>();
  }

  HostArray clone() const;
  // Returns a copy with dtype `dtype`. The elements pass through f32 and are rounded to the nearest value, ties to
  // even. Throws InternalError when the dtypes differ and one of them is not bf16, f16, f32 or f64.
  HostArray to(DType dtype) const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  Shape shape_;
  std::unique_ptr<std::byte[], Free> bytes_;
};

float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);  // round to nearest even; NaN stays NaN
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // round to nearest even; overflow gives infinity

// Read and write element `index` of an array of bf16, f16, f32 or f64 at `data`. Other dtypes throw InternalError.
float load_float(const std::byte* data, DType dtype, int64_t index);
void store_float(std::byte* data, DType dtype, int64_t index, float value);

}  // namespace fettle
