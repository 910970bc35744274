// Defines DiskLayout: where arrays are in the file of offload_dir.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "programs/devices.h"
#include "run/run.h"
#include "runtime/signature.h"

namespace fettle {

// One layer of an array that disk_arrays() (update_program.h) returns. In the file, each part begins at a multiple of
// kDiskBlock.
struct DiskArray {
  // A box that at least one device of this process stores.
  struct Part {
    Box box;
    int position = 0;   // the position in `layout` of a device of this process that stores the box
    bool owned = true;  // this process writes the box into checkpoints; false: another process does that
  };
  std::string name;
  Shape whole;  // shape of the array of all layers
  Shape shape;  // shape of one layer, [1, ...]; the same as `whole` for a parameter that is not stacked
  Layout layout;
  std::vector<Part> parts;  // with distinct boxes
  int64_t part_bytes = 0, part_stride = 0;
  int64_t offset = 0;  // bytes from the start of the layer's block to the array
};

// The arrays of a trained parameter: `layers` blocks of `block_bytes`, one after the other, from `start` in the file.
struct DiskParam {
  int64_t layers = 1;
  std::vector<DiskArray> arrays;
  int64_t start = 0, block_bytes = 0;
};

struct DiskLayout {
  std::vector<DiskParam> params;  // in the order of Run::trained
  int64_t file_bytes = 0;
  int64_t staging_bytes = 0;  // host memory for the blocks that are being read, updated and written
};

// Returns the layout of the file as if one process had all devices of the run.
DiskLayout disk_layout(const Run& run);
// Returns the layout of this process's file: the parts of its own devices.
DiskLayout disk_layout(const Run& run, const Devices& devices);

}  // namespace fettle
