#include "models/blocks/run_layers.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/pipeline.h"
#include "models/layer_groups.h"

namespace fettle {
namespace {

// The slices of one stacked parameter for one group of layers.
struct GroupStack {
  const Param* param;            // null: the stack is one of LayerValues::slices
  std::string name;              // name within a layer
  std::vector<int64_t> offsets;  // which layers of a period have the parameter
  Tensor slices;                 // [repeats, ...]; with a period above 1 [repeats, number of offsets, ...]
};

// Reshapes the slices [L, ...] of a group to [repeats, slices of one period, ...]. If the period is 1, returns them
// unchanged. Each trip of the group's loop computes one repeat.
Tensor by_trip(const Tensor& slices, const LayerGroup& group) {
  if (group.period == 1) return slices;
  Dims apart = slices.dims();
  apart[0] /= group.repeats;
  apart.insert(apart.begin(), group.repeats);
  return reshape(slices, apart);
}

std::vector<GroupStack> stacks_of(const Forward& f, const std::string& layer_prefix, const LayerGroup& group,
                                  const LayerValues& values) {
  std::vector<GroupStack> out;
  for (const auto& [name, all] : values.slices) {
    GroupStack stack{nullptr, name, {}, by_trip(slice(all, 0, group.first, group.end()), group)};
    for (int64_t offset = 0; offset < group.period; ++offset) stack.offsets.push_back(offset);
    out.push_back(std::move(stack));
  }
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
    stack.slices = by_trip(stack.slices, group);
    out.push_back(std::move(stack));
  }
  return out;
}

// A range of a group's repeats. All layers in it save the same kinds of values for the backward pass.
struct Part {
  int64_t first, repeats;
  Remat saves;
};

std::vector<Part> parts_of(const Forward& f, const LayerGroup& group) {
  // The number of layers of a stage, which is the same for all stages.
  const int64_t layers = f.config.num_hidden_layers / f.sharding.stages();
  const int64_t full = (f.remat.full_layers(layers) - group.first + group.period - 1) / group.period;
  if (full <= 0) return {{0, group.repeats, f.remat.saves}};
  if (full >= group.repeats) return {{0, group.repeats, Remat::kFull}};
  return {{0, full, Remat::kFull}, {full, group.repeats - full, f.remat.saves}};
}

class Layers {
 public:
  // `first_trip` (i32) is the number of the first repeat that run() computes; null: 0.
  Layers(Forward& f, LayerBody body, LayerValues& values, const Tensor& first_trip = {})
      : f_(f), body_(std::move(body)), values_(values), first_trip_(first_trip) {}

  // A group's loop carries the residual stream, the cache, and then the values that this function returns.
  std::vector<Tensor> others(const LayerGroup& group) const {
    std::vector<Tensor> out;
    if (f_.router) out.push_back(f_.router);
    if (f_.loads) out.push_back(f_.loads);
    if (group.first < values_.first_reader)
      for (const auto& [name, value] : values_.kept) out.push_back(value);
    return out;
  }

  // Sets the values of others() to those in `carried`, which has all values that the loop carries.
  void take_others(const LayerGroup& group, const std::vector<Tensor>& carried) {
    size_t next = 1 + (f_.cache ? f_.cache->arrays.size() : 0);
    if (f_.router) f_.router = carried[next++];
    if (f_.loads) f_.loads = carried[next++];
    if (group.first < values_.first_reader)
      for (auto& [name, value] : values_.kept) value = carried[next++];
  }

  // Computes layer number `offset` of repeat number `trip` (i32) from the layer's weights.
  ScanStep one(const LayerGroup& group, const Tensor& trip, int64_t offset, const std::vector<GroupStack>& stacks,
               const std::vector<Tensor>& carried, const std::vector<Tensor>& weights) {
    auto at = [&](int64_t each, int64_t first) {
      const Tensor times = each == 1 ? trip : trip * static_cast<double>(each);
      return first == 0 ? times : times + static_cast<double>(first);
    };
    const int64_t lowest = group.first + offset;
    Layer layer{at(group.period, lowest), lowest, {}};
    for (size_t i = 0; i < stacks.size(); ++i) {
      const bool fetched = f_.fetch && stacks[i].param != nullptr;
      layer.weights[stacks[i].name] = fetched ? f_.fetch(*stacks[i].param, weights[i]) : weights[i];
    }
    // Compilers inline the layers of a period, and would unpack the weights of all these layers first. So every layer
    // but the first waits for its input before it unpacks its weights.
    Tensor input = carried[0];
    if (f_.unpack) f_.unpack(layer, offset > 0 ? &input : nullptr);
    take_others(group, carried);
    ScanStep step{carried, {}};
    // The arrays of the cache that the layer has. The first value that the loop carries is the residual stream.
    std::map<std::string, size_t> arrays;
    for (size_t i = 0; f_.cache && i < f_.cache->kinds.size(); ++i)
      if (f_.cache->kinds[i].layers.contains(lowest)) arrays[f_.cache->kinds[i].name] = i;
    std::map<std::string, CacheSlice> slices;
    std::map<std::pair<int64_t, int64_t>, Tensor> numbers;  // arrays of the same layers share the number of the slice
    for (const auto& [name, i] : arrays) {
      const LayerSet& layers = f_.cache->kinds[i].layers;
      const int64_t each = layers.within(group.first, group.first + group.period).count();
      Tensor& number = numbers[{each, layers.slice_of(lowest)}];
      if (!number) number = at(each, layers.slice_of(lowest));
      slices[name] = {carried[1 + i], number};
    }
    LayerCache cache(std::move(slices));
    const Tensor x = body_(layer, input, f_.cache ? &cache : nullptr);
    step.carries[0] = f_.cache ? x : f_.sharding.constrain(x, {"batch", "length", "act_embed"});
    for (const auto& [name, i] : arrays) step.carries[1 + i] = cache.slice(name).stack;
    const std::vector<Tensor> now = others(group);
    std::ranges::copy(now, step.carries.end() - static_cast<std::ptrdiff_t>(now.size()));
    return step;
  }

  // Computes a group. `carries` are the residual stream and the cache.
  std::vector<Tensor> run(const LayerGroup& group, const std::vector<GroupStack>& stacks, std::vector<Tensor> carries) {
    const size_t own = carries.size();
    for (const Tensor& other : others(group)) carries.push_back(other);
    std::vector<Tensor> slices;
    for (const GroupStack& stack : stacks) slices.push_back(stack.slices);
    const bool scores_again = f_.remat.scores_again;
    for (const Part& part : parts_of(f_, group)) {
      f_.remat.scores_again = scores_again && part.saves != Remat::kFull;
      // If a period has several layers, an inner loop with one iteration computes each of them. The outer loop then
      // saves only the values that the inner loops save.
      const Remat outer = group.period == 1 || part.saves == Remat::kNone ? part.saves : Remat::kDots;
      const ScanBody body = [&](const Tensor& trip, const std::vector<Tensor>& carried,
                                const std::vector<Tensor>& weights) {
        Tensor number = part.first == 0 ? trip : trip + static_cast<double>(part.first);
        if (first_trip_) number = number + first_trip_;
        return group.period == 1 ? one(group, number, 0, stacks, carried, weights)
                                 : period(group, number, stacks, carried, weights, part.saves);
      };
      carries = scan(part.repeats, carries, slices, body, {.remat = outer, .first = part.first}).carries;
    }
    f_.remat.scores_again = scores_again;
    take_others(group, carries);
    carries.resize(own);
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
  LayerBody body_;
  LayerValues& values_;
  Tensor first_trip_;
};

// Computes the layers as a pipeline. All layers form one group, and each stage computes an equal share of the
// group's repeats.
Tensor run_pipeline(Forward& f, const std::string& layer_prefix, const std::vector<LayerGroup>& groups,
                    const Tensor& x_BTD, const LayerBodyFor& body) {
  const int64_t stages = f.sharding.stages();
  const LayerGroup& group = groups[0];
  internal_check(!f.cache && !f.router && !f.loads && !f.fetch && groups.size() == 1 && group.repeats % stages == 0,
                 "{} stages cannot share these layers", stages);
  const LayerGroup own{0, group.period, group.repeats / stages};
  const std::vector<GroupStack> stacks = stacks_of(f, layer_prefix, group, {});
  std::vector<Tensor> by_stage;
  for (const GroupStack& stack : stacks) {
    Dims apart = stack.slices.dims();
    apart[0] = own.repeats;
    apart.insert(apart.begin(), stages);
    by_stage.push_back(reshape(stack.slices, apart));
  }
  return run_stages(f, x_BTD, by_stage,
                    [&](Forward& of_stage, const Tensor& stage, const Tensor& x, const std::vector<Tensor>& slices) {
                      std::vector<GroupStack> of_group = stacks;
                      for (size_t i = 0; i < slices.size(); ++i) of_group[i].slices = slices[i];
                      LayerValues none;
                      const Tensor first = stage * static_cast<double>(own.repeats);
                      return Layers(of_stage, body(of_stage), none, first).run(own, of_group, {x})[0];
                    });
}

}  // namespace

Tensor run_layers(Forward& f, const std::string& layer_prefix, const Tensor& x_BTD, const LayerBodyFor& body,
                  LayerValues* values) {
  PathScope scope("layers");
  std::vector<Tensor> carries{x_BTD};
  if (f.cache) carries.insert(carries.end(), f.cache->arrays.begin(), f.cache->arrays.end());
  std::vector<LayerSet> sets;
  for (const auto& [name, entry] : f.weights) sets.push_back(entry.param.layers);
  const std::vector<LayerGroup> groups = group_layers(f.config.num_hidden_layers, sets);
  if (f.sharding.stages() > 1) return run_pipeline(f, layer_prefix, groups, x_BTD, body);
  LayerValues none;
  LayerValues& given = values != nullptr ? *values : none;
  Layers layers(f, body(f), given);
  for (const LayerGroup& group : groups) carries = layers.run(group, stacks_of(f, layer_prefix, group, given), carries);
  if (f.cache) std::copy_n(carries.begin() + 1, f.cache->arrays.size(), f.cache->arrays.begin());
  return carries[0];
}

}  // namespace fettle
