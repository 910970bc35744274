// Defines groups of layers: if the layers of a model differ in kind, each group is computed by one loop. Layers are of
// the same kind when they have the same parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace fettle {

// From layer `first` on, a sequence of `period` layers is repeated `repeats` times, with the same kinds in each repeat.
// For example, 48 layers that repeat "three linear, one full" are {0, 4, 12}, and 58 equal layers after three others
// are {3, 1, 58}.
struct LayerGroup {
  int64_t first = 0, period = 1, repeats = 1;

  int64_t end() const { return first + period * repeats; }
};

// Divides layers 0 to `layers` - 1 into groups. `sets` has the layers of each parameter.
std::vector<LayerGroup> group_layers(int64_t layers, const std::vector<LayerSet>& sets);
// Divides a model's layers into groups by the parameters that they have.
std::vector<LayerGroup> groups_of(const Model& model);
// Returns whether all layers have the same parameters.
bool has_one_kind(const Model& model);

// Cuts each stacked parameter where one group of layers ends and the next begins, so that each part belongs to one
// loop. A model whose layers are all alike keeps its stacks.
std::vector<Param> cut_at_groups(const std::vector<Param>& params, const std::vector<LayerGroup>& groups);

}  // namespace fettle
