// Defines checks of a composite's inputs: their dtype, and how their rows are split over devices.
#pragma once

#include "graph/custom_call.h"

namespace fettle::cpu {

inline bool is_cpu_float(const Shape& shape) {
  return shape.dtype == DType::kF32 || shape.dtype == DType::kBF16;
}

// Returns true if no two devices have the same rows of an array and the array's last dim is not split. Returns false if
// a mesh axis does not split the rows, because all devices along that axis would compute the same rows.
inline bool rows_are_split(const Shape& shape, Partition split, const MeshAxes& mesh) {
  split.dims.resize(shape.dims.size());
  return split.dims.back().empty() && shape.elements() / shard_of(shape, split, mesh).elements() == mesh.size();
}

}  // namespace fettle::cpu
