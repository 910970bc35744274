// Defines LayerSet: some of a model's layers.
#pragma once

#include <cstdint>
#include <vector>

namespace fettle {

// Some of a model's layers, such as those for which a parameter's stack has slices.
struct LayerSet {
  std::vector<int64_t> numbers;  // in ascending order; empty: the parameter is outside of the layers
  int64_t all = 0;  // number of the model's layers that have the parameter; larger than count() if the stack was cut

  int64_t count() const { return static_cast<int64_t>(numbers.size()); }
  bool contains(int64_t layer) const;
  // Returns the index of the layer's slice in the stack. The layer must be one of `numbers`.
  int64_t slice_of(int64_t layer) const;
  // Returns the part of the set whose layer numbers are in [first, end).
  LayerSet within(int64_t first, int64_t end) const;
  bool operator==(const LayerSet&) const = default;
};

// Returns the layers 0, 1, ... count - 1.
LayerSet all_layers(int64_t count);
// Returns the layers below `count` that are not in `set`.
LayerSet layers_without(const LayerSet& set, int64_t count);

}  // namespace fettle
