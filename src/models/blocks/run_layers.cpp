#include "models/blocks/run_layers.h"

#include <algorithm>

#include "graph/ops.h"
#include "models/layer_groups.h"

namespace fettle {
namespace {

// The slices of one stacked parameter for one group of layers.
struct GroupStack {
  const Param* param;
  std::string name;              // within a layer
  std::vector<int64_t> offsets;  // which layers of a period have the parameter
  Tensor slices;                 // [repeats, ...]; with a period above 1 [repeats, offsets, ...]
};

std::vector<GroupStack> stacks_of(const Forward& f, const std::string& layer_prefix, const LayerGroup& group) {
  std::vector<GroupStack> out;
  for (const auto& [name, entry] : f.weights) {
    const LayerSet here = entry.param.layers.within(group.first, group.end());
    if (here.numbers.empty()) continue;
    GroupStack stack{&entry.param, entry.param.hf_name.substr(layer_prefix.size()), {}, entry.value};
    for (const int64_t layer : here.numbers)
      if (layer < group.first + group.period) stack.offsets.push_back(layer - group.first);
    if (here.count() != entry.param.layers.count()) {
      const int64_t first = entry.param.layers.slice_of(here.numbers.front());
      stack.slices = slice(stack.slices, 0, first, first + here.count());
    }
    if (group.period > 1) {
      Dims apart = stack.slices.dims();
      apart[0] /= group.repeats;
      apart.insert(apart.begin(), group.repeats);
      stack.slices = reshape(stack.slices, apart);
    }
    out.push_back(std::move(stack));
  }
  return out;
}

// A range of a group's repeats whose layers save the same values.
struct Part {
  int64_t first, repeats;
  Remat saves;
};

std::vector<Part> parts_of(const Forward& f, const LayerGroup& group) {
  const int64_t full =
      (f.remat.full_layers(f.config.num_hidden_layers) - group.first + group.period - 1) / group.period;
  if (full <= 0) return {{0, group.repeats, f.remat.saves}};
  if (full >= group.repeats) return {{0, group.repeats, Remat::kFull}};
  return {{0, full, Remat::kFull}, {full, group.repeats - full, f.remat.saves}};
}

class Layers {
 public:
  Layers(Forward& f, const LayerBody& body) : f_(f), body_(body) {}

  // Computes layer number `offset` of period number `trip` (i32) from its weights.
  ScanStep one(const LayerGroup& group, const Tensor& trip, int64_t offset, const std::vector<GroupStack>& stacks,
               const std::vector<Tensor>& carried, const std::vector<Tensor>& weights) {
    auto at = [&](int64_t each, int64_t first) {
      const Tensor times = each == 1 ? trip : trip * static_cast<double>(each);
      return first == 0 ? times : times + static_cast<double>(first);
    };
    const int64_t lowest = group.first + offset;
    Layer layer{at(group.period, lowest), lowest, {}};
    for (size_t i = 0; i < stacks.size(); ++i)
      layer.weights[stacks[i].name] = f_.fetch ? f_.fetch(*stacks[i].param, weights[i]) : weights[i];
    if (f_.unpack) f_.unpack(layer);
    if (!f_.cache) {
      if (f_.router) f_.router = carried.back();
      const Tensor x = body_(layer, carried[0], nullptr);
      ScanStep step{{f_.sharding.constrain(x, {"batch", "length", "act_embed"})}, {}};
      if (f_.router) step.carries.push_back(f_.router);
      return step;
    }
    const std::vector<CacheArray>& kinds = f_.cache->kinds;
    LayerCache cache;
    std::vector<std::vector<Tensor>> starts(
        kinds.size());  // start indices of the layer's slice; empty: the layer has no such array
    for (size_t i = 0; i < kinds.size(); ++i) {
      const LayerSet& has = kinds[i].layers;
      if (!has.contains(lowest)) continue;
      starts[i].assign(kinds[i].dims.size() + 1, constant(0, DType::kI32));
      starts[i][0] = at(has.within(group.first, group.first + group.period).count(), has.slice_of(lowest));
      Dims slice = carried[i + 1].dims();
      slice[0] = 1;
      cache[kinds[i].name] =
          reshape(dynamic_slice(carried[i + 1], starts[i], slice), Dims(slice.begin() + 1, slice.end()));
    }
    ScanStep step{carried, {}};
    step.carries[0] = body_(layer, carried[0], &cache);
    for (size_t i = 0; i < kinds.size(); ++i)
      if (!starts[i].empty())
        step.carries[i + 1] = dynamic_update_slice(carried[i + 1], expand(cache.at(kinds[i].name), 0), starts[i]);
    return step;
  }

  std::vector<Tensor> run(const LayerGroup& group, const std::vector<GroupStack>& stacks, std::vector<Tensor> carries) {
    std::vector<Tensor> slices;
    for (const GroupStack& stack : stacks) slices.push_back(stack.slices);
    const bool scores_again = f_.remat.scores_again;
    for (const Part& part : parts_of(f_, group)) {
      f_.remat.scores_again = scores_again && part.saves != Remat::kFull;
      // In a period of several layers, each layer is an inner loop of one trip. The outer loop then saves only what the
      // inner loops save.
      const Remat outer = group.period == 1 || part.saves == Remat::kNone ? part.saves : Remat::kDots;
      const ScanBody body = [&](const Tensor& trip, const std::vector<Tensor>& carried,
                                const std::vector<Tensor>& weights) {
        const Tensor number = part.first == 0 ? trip : trip + static_cast<double>(part.first);
        return group.period == 1 ? one(group, number, 0, stacks, carried, weights)
                                 : period(group, number, stacks, carried, weights, part.saves);
      };
      carries = scan(part.repeats, carries, slices, body, {.remat = outer, .first = part.first}).carries;
    }
    f_.remat.scores_again = scores_again;
    return carries;
  }

 private:
  ScanStep period(const LayerGroup& group, const Tensor& trip, const std::vector<GroupStack>& stacks,
                  const std::vector<Tensor>& carried, const std::vector<Tensor>& slices, Remat saves) {
    std::vector<Tensor> now = carried;
    for (int64_t offset = 0; offset < group.period; ++offset) {
      std::vector<GroupStack> own;
      std::vector<Tensor> weights;
      for (size_t i = 0; i < stacks.size(); ++i) {
        const auto found = std::ranges::find(stacks[i].offsets, offset);
        if (found == stacks[i].offsets.end()) continue;
        const int64_t nth = found - stacks[i].offsets.begin();
        own.push_back(stacks[i]);
        weights.push_back(slice(slices[i], 0, nth, nth + 1));
      }
      const ScanBody body = [&](const Tensor&, const auto& inner, const auto& of_layer) {
        return one(group, trip, offset, own, inner, of_layer);
      };
      now = scan(1, now, weights, body, {.remat = saves}).carries;
    }
    return {now, {}};
  }

  Forward& f_;
  const LayerBody& body_;
};

}  // namespace

Tensor run_layers(Forward& f, const std::string& layer_prefix, const Tensor& x_BTD, const LayerBody& body) {
  PathScope scope("layers");
  std::vector<Tensor> carries{x_BTD};
  if (f.cache) carries.insert(carries.end(), f.cache->arrays.begin(), f.cache->arrays.end());
  if (f.router) carries.push_back(f.router);
  std::vector<LayerSet> sets;
  for (const auto& [name, entry] : f.weights) sets.push_back(entry.param.layers);
  Layers layers(f, body);
  for (const LayerGroup& group : group_layers(f.config.num_hidden_layers, sets))
    carries = layers.run(group, stacks_of(f, layer_prefix, group), carries);
  if (f.cache) std::copy_n(carries.begin() + 1, f.cache->arrays.size(), f.cache->arrays.begin());
  if (f.router) f.router = carries.back();
  return carries[0];
}

}  // namespace fettle
