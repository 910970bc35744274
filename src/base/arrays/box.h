// Defines Box: a rectangular part of an array.
#pragma once

#include <string>

#include "base/arrays/shape.h"

namespace fettle {

// The elements [start, start + size) in every dim. The box of a scalar has rank 0.
struct Box {
  Dims start, size;

  int64_t elements() const { return product(size); }
  static Box whole(const Dims& dims) { return {Dims(dims.size(), 0), dims}; }
  bool operator==(const Box&) const = default;
  std::string to_string() const;  // "[0:16, 32:64]"
};

}  // namespace fettle
