// Defines Tensor, a value in a graph, and the types that say where it lies: Partition (the mesh axes that split its
// dims), Memory, and MeshAxes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/arrays/shape.h"

namespace fettle {

class Block;

// For each dim, the mesh axes that split it, major first. A dim with an empty list is not split; if `dims` is empty, no
// dim is split. Printed as a sharding of Shardy, the partitioner of XLA (prefix sdy).
struct Partition {
  std::vector<std::vector<std::string>> dims;
  bool operator==(const Partition&) const = default;
};

// Where an array lies: in the device's own memory, or in the host's memory, which the device can copy from and to.
enum class Memory : uint8_t { kDevice, kHost };
const char* memory_kind(Memory memory);  // PJRT's name: "device", "pinned_host"

// A mesh of devices: the names and sizes of its axes, major first. Devices are numbered row-major.
struct MeshAxes {
  std::vector<std::pair<std::string, int64_t>> axes;
  int64_t size() const;                            // number of devices: product of the sizes
  int64_t size_of(const std::string& axis) const;  // 1 for an axis that the mesh lacks
  bool operator==(const MeshAxes&) const = default;
};

// A handle to result `result` of node `node` in `block`. It is cheap to copy. A default-constructed Tensor is null.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Block* block, int32_t node, int32_t result) : block_(block), node_(node), result_(result) {}

  explicit operator bool() const { return block_ != nullptr; }
  Block* block() const { return block_; }
  int32_t node() const { return node_; }
  int32_t result() const { return result_; }
  bool operator==(const Tensor&) const = default;

  const Shape& shape() const;
  DType dtype() const { return shape().dtype; }
  const Dims& dims() const { return shape().dims; }
  int64_t dim(int64_t i) const;  // a negative i counts from the end
  int64_t rank() const { return shape().rank(); }

 private:
  Block* block_ = nullptr;
  int32_t node_ = 0;
  int32_t result_ = 0;
};

}  // namespace fettle
