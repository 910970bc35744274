// Defines groups of layers. If the layers of a model are of different kinds, each group is computed by a loop of its
// own. Layers are of the same kind when they have the same parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace fettle {

// From layer `first` on, a sequence of `period` layers occurs `repeats` times, each time with the same kinds of layers.
// For example, 48 layers that repeat "three linear, one full" are {0, 4, 12}. 58 equal layers after three others are
// {3, 1, 58}.
struct LayerGroup {
  int64_t first = 0, period = 1, repeats = 1;

  int64_t end() const { return first + period * repeats; }
};

// Divides the layers 0 to `layers` - 1 into groups. `sets` has one LayerSet for each parameter: the layers that have
// it.
std::vector<LayerGroup> group_layers(int64_t layers, const std::vector<LayerSet>& sets);
// Divides a model's layers into groups according to their parameters.
std::vector<LayerGroup> groups_of(const Model& model);
// Returns whether all layers have the same parameters.
bool has_one_kind(const Model& model);

// Cuts each stacked parameter at the boundaries of the groups, so that each of the smaller stacks belongs to one loop.
// If all layers of a model are of one kind, its stacks stay whole.
std::vector<Param> cut_at_groups(const std::vector<Param>& params, const std::vector<LayerGroup>& groups);

}  // namespace fettle
