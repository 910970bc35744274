#include "models/layer_groups.h"

#include <algorithm>
#include <map>

namespace fettle {
namespace {

constexpr int64_t kLongestPeriod = 16;  // limits the size of a loop's body, which has the code of a whole period

}  // namespace

std::vector<LayerGroup> group_layers(int64_t layers, const std::vector<LayerSet>& sets) {
  std::map<std::vector<bool>, int64_t> numbers;
  std::vector<int64_t> kinds;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<bool> has;
    for (const LayerSet& set : sets) has.push_back(set.contains(layer));
    kinds.push_back(numbers.emplace(has, static_cast<int64_t>(numbers.size())).first->second);
  }
  std::vector<LayerGroup> out;
  for (int64_t first = 0; first < layers; first = out.back().end()) {
    LayerGroup best{first, 1, 1};
    for (int64_t period = 1; period <= kLongestPeriod; ++period) {
      int64_t end = first + period;
      while (end < layers && kinds[end] == kinds[end - period]) ++end;
      const LayerGroup group{first, period, (std::min(end, layers) - first) / period};
      const bool repeats = period == 1 || group.repeats > 1;
      if (repeats && group.end() > best.end()) best = group;
    }
    out.push_back(best);
  }
  return out;
}

std::vector<LayerGroup> groups_of(const Model& model) {
  std::vector<LayerSet> sets;
  for (const Param& param : model.params) sets.push_back(param.layers);
  return group_layers(model.config.num_hidden_layers, sets);
}

bool has_one_kind(const Model& model) {
  const std::vector<LayerGroup> groups = groups_of(model);
  return groups.size() == 1 && groups[0].period == 1;
}

std::vector<Param> cut_at_groups(const std::vector<Param>& params, const std::vector<LayerGroup>& groups) {
  std::vector<Param> out;
  for (const Param& param : params) {
    if (!param.stacked()) out.push_back(param);
    for (const LayerGroup& group : groups) {
      Param part = param;
      part.layers = param.layers.within(group.first, group.end());
      if (part.stacked()) out.push_back(std::move(part));
    }
  }
  return out;
}

}  // namespace fettle
