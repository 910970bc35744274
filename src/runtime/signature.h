// Defines Layout and Signature. A Layout says which part of a global array each device stores. A Signature lists the
// arguments and results of a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/arrays/box.h"
#include "base/arrays/shape.h"

namespace fettle {

// States which part of a global array each device stores: device ordinal(i) stores boxes[i]. Devices with equal boxes
// are replicas. All boxes have the same size, as plugins require, and together they cover the array.
struct Layout {
  std::vector<Box> boxes;
  std::vector<int> devices = {};  // ordinals in Client::devices(), one per box; empty means 0, 1, 2, ...

  int count() const { return static_cast<int>(boxes.size()); }
  int ordinal(int position) const { return devices.empty() ? position : devices[position]; }
  // parts() returns the distinct boxes in order of first appearance. part_of()[i] is the index of boxes[i] in parts().
  std::vector<Box> parts() const;
  std::vector<int> part_of() const;
  bool operator==(const Layout& other) const;

  // Returns the layout in which each of `count` devices stores the whole array.
  static Layout replicated(const Dims& dims, int count);
  // Returns the layout for a mesh whose axes have the sizes `mesh`. The devices are numbered in row-major order. Dim d
  // is split over the mesh axes axes_of_dim[d], the major axis first, as in a sharding of Shardy. Devices along all
  // other axes store replicas. Throws InternalError when an axis is named twice or a dim is not divisible by the sizes
  // of its axes.
  static Layout sharded(const Dims& dims, const Dims& mesh, const std::vector<std::vector<int>>& axes_of_dim);
};

// One argument or result of a compiled program.
struct ArgInfo {
  std::string name;
  Shape shape;  // the global shape
  Layout layout;
  bool donated = false;          // inputs only: the program reuses the memory, and run() deletes the buffer
  std::string memory_kind = {};  // "" or "device": device memory; "pinned_host": host memory that the device can read
};

// The arguments and results of a program, in order. The module text must agree with the signature: Executable checks
// the shapes of the results after compiling, and the arguments before each run.
struct Signature {
  std::vector<ArgInfo> inputs = {};
  std::vector<ArgInfo> outputs = {};
};

// Throws InternalError, which names `what`, if the layout does not fit `shape`: a box has another rank, is out of
// bounds or has another size than the first box, or a device occurs twice.
void check_layout(const Shape& shape, const Layout& layout, const std::string& what);

}  // namespace fettle
