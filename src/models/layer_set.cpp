#include "models/layer_set.h"

#include <algorithm>
#include <numeric>

namespace fettle {

bool LayerSet::contains(int64_t layer) const {
  return std::ranges::binary_search(numbers, layer);
}

int64_t LayerSet::slice_of(int64_t layer) const {
  return std::ranges::lower_bound(numbers, layer) - numbers.begin();
}

LayerSet LayerSet::within(int64_t first, int64_t end) const {
  return {{std::ranges::lower_bound(numbers, first), std::ranges::lower_bound(numbers, end)}, all};
}

LayerSet layers_without(const LayerSet& set, int64_t count) {
  LayerSet out;
  for (int64_t layer = 0; layer < count; ++layer)
    if (!set.contains(layer)) out.numbers.push_back(layer);
  out.all = out.count();
  return out;
}

LayerSet all_layers(int64_t count) {
  LayerSet out{std::vector<int64_t>(static_cast<size_t>(count)), count};
  std::iota(out.numbers.begin(), out.numbers.end(), 0);
  return out;
}

}  // namespace fettle
