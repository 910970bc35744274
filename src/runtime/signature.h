// Defines Box, Layout and Signature: which part of a global array each device holds, and what a program takes and
// gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/arrays/box.h"
#include "base/arrays/shape.h"

namespace fettle {

// Where a global array lies. boxes[i] is the part on the i-th device of the mesh; devices with equal boxes are
// replicas. All boxes have the same size (the plugins demand it) and together they cover the array.
struct Layout {
  std::vector<Box> boxes;
  std::vector<int> devices = {};  // ordinals in Client::devices(), one a box; empty means 0, 1, 2, ...

  int count() const { return static_cast<int>(boxes.size()); }
  int ordinal(int position) const { return devices.empty() ? position : devices[position]; }
  // The distinct boxes in order of first appearance; part_of[i] is the index of device i's box among them.
  std::vector<Box> parts() const;
  std::vector<int> part_of() const;
  bool operator==(const Layout& other) const;

  // Every one of `count` devices holds the whole array.
  static Layout replicated(const Dims& dims, int count);
  // A mesh with axes of the sizes `mesh` (devices numbered row-major over it) where dim d is split over the mesh axes
  // axes_of_dim[d], major axis first, as in an sdy sharding. Axes not named hold replicas. Throws InternalError on an
  // axis named twice or a dim that does not divide.
  static Layout sharded(const Dims& dims, const Dims& mesh, const std::vector<std::vector<int>>& axes_of_dim);
};

// One argument or result of a compiled program.
struct ArgInfo {
  std::string name;
  Shape shape;  // global
  Layout layout;
  bool donated = false;          // inputs only: the program takes the memory, the buffer is deleted by run()
  std::string memory_kind = {};  // "" or "device": device memory; "pinned_host": host memory the device reads
};

// What a program takes and gives, in order. Module text must agree with it: Executable checks the results' shapes after
// compiling and every argument before each run.
struct Signature {
  std::vector<ArgInfo> inputs = {};
  std::vector<ArgInfo> outputs = {};
};

// Throws InternalError naming `what` unless the layout fits `shape` (ranks, bounds, equal box sizes, distinct devices).
void check_layout(const Shape& shape, const Layout& layout, const std::string& what);

}  // namespace fettle
