// Defines how shardings are shown: arrays as boxes with the numbers of the devices that store them, a table, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sharding/rules.h"

namespace fettle {

// One array of a program and its partition on a mesh.
struct PlacedArray {
  std::string kind;   // arrays of one kind are shown together: "frozen weights"
  std::string name;   // "model.layers.{}.mlp.up_proj.weight"
  std::string label;  // a short name for the picture: "mlp.up_proj"
  Shape shape;        // the global shape
  LogicalAxes axes;
  Partition partition;
  std::string note = {};  // "size 50257 (vocab) cannot be split over tp (2 devices), so tp does not split it"

  int64_t bytes() const { return shape.bytes(); }
  int64_t bytes_per_device(const MeshAxes& mesh) const;
};

// Draws one box per part, with the numbers of the devices that store it. The parts of the first split dim are drawn
// below each other; the parts of the other split dims are drawn side by side. If only the last dim is split, its parts
// are drawn side by side. If there are more than 8 boxes in a direction, the middle ones are left out. Each line ends
// in a newline. `colour` fills the boxes with terminal colours.
std::string draw_partition(const Partition& partition, const MeshAxes& mesh, bool colour);

// Formats each dim's mesh axes: "[-, tp+fsdp]".
std::string to_string(const Partition& partition);

// Arrays of the same kind that are split in the same way form a group. Formats one picture for each group, and then a
// table of all arrays. If a kind has the same groups as an earlier kind, names the earlier kind instead of repeating
// the pictures.
std::string format_placed(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh, bool colour);
// Returns {"mesh": [{"axis", "size"}], "arrays": [{"kind", "name", "shape", "dtype", "axes", "partition",
// "bytes_per_device", "bytes", "note"}]}; "note" is absent when it is empty.
nlohmann::json placed_json(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh);

}  // namespace fettle
