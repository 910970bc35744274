// Defines how shardings are shown: arrays as boxes that name the devices holding them, a table, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sharding/rules.h"

namespace fettle {

// One array of a program with its place on a mesh.
struct PlacedArray {
  std::string kind;   // arrays of a kind stand and are shown together: "frozen weights"
  std::string name;   // "model.layers.{}.mlp.up_proj.weight"
  std::string label;  // short, for the picture: "mlp.up_proj"
  Shape shape;        // global
  LogicalAxes axes;
  Partition partition;
  std::string note = {};  // "vocab 50257 does not divide by tp 2: whole on it"

  int64_t bytes() const { return shape.bytes(); }
  int64_t bytes_per_device(const MeshAxes& mesh) const;
};

// One box a part, with the numbers of the devices that hold it. The first split dim goes down and the second across; a
// single one goes across when it is the last dim. Further split dims share a box. More than 8 boxes in a direction are
// cut in the middle. Lines end in newlines; `colour` fills the boxes with terminal colours.
std::string draw_partition(const Partition& partition, const MeshAxes& mesh, bool colour);

// "[-, tp+fsdp]": each dim's mesh axes.
std::string to_string(const Partition& partition);

// Pictures by kind, one for all of its arrays that lie alike, then the table.
std::string format_placed(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh, bool colour);
// {"mesh": [{"axis", "size"}], "arrays": [{"kind", "name", "shape", "dtype", "axes", "partition", "bytes_per_device",
// "bytes", "note"}]}; the note only where there is one.
nlohmann::json placed_json(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh);

}  // namespace fettle
