#include "generate/decode_programs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/ops.h"
#include "kernels/kernels.h"
#include "models/blocks/loss.h"
#include "programs/layouts.h"
#include "step/forward.h"

namespace fettle {
namespace {

Shape cache_shape(const Run& run, const CacheArray& array, int64_t rows, int64_t capacity) {
  internal_check(array.dims.at(0) == 1, "the first dim of a cache's array must be the rows");
  Shape shape{array.dtype.value_or(run.precision.compute), {array.layers.count(), rows}};
  for (size_t d = 1; d < array.dims.size(); ++d) shape.dims.push_back(array.dims[d] < 0 ? capacity : array.dims[d]);
  return shape;
}

Partition cache_partition(const Run& run, const CacheArray& array, const Shape& shape) {
  LogicalAxes axes = array.axes;
  axes.insert(axes.begin(), "layers");
  return run.sharding.partition(axes, shape.dims, "the cache of " + array.name);
}

}  // namespace

std::vector<CacheArray> cache_arrays(const Run& run) {
  return run.model.family->cache(run.model.config);
}

std::string cache_input(const CacheArray& array) {
  // Arrays with the same name belong to different layers, so the first layer tells them apart.
  return fmt::format("cache/{}[{}]", array.name, array.layers.numbers.empty() ? 0 : array.layers.numbers.front());
}

CacheBuffers empty_cache(Devices& devices, const Run& run, int64_t rows, int64_t capacity) {
  CacheBuffers out;
  for (const CacheArray& array : cache_arrays(run)) {
    const Shape shape = cache_shape(run, array, rows, capacity);
    const Layout layout = layout_of(cache_partition(run, array, shape), shape.dims, run.sharding.mesh());
    out.insert_or_assign(cache_input(array), DeviceBuffer::zeros(devices.client(), shape, layout));
  }
  return out;
}

std::optional<DeviceBuffer> row_scales(const Devices& devices, const Run& run, const std::vector<int64_t>& chosen) {
  if (run.adapter.side_by_side.empty()) return std::nullopt;
  return replicate(devices, rank_scales(run.adapter.side_by_side, chosen));
}

int64_t capacity_for(int64_t positions, int64_t longest) {
  int64_t capacity = kSmallestCapacity;
  while (capacity < positions) capacity *= 2;
  return std::min(capacity, longest);
}

bool has_too_much_room(int64_t capacity, int64_t positions, int64_t longest) {
  return capacity > 4 * capacity_for(positions, longest);
}

Program build_piece(const Run& run, int64_t rows, int64_t length, int64_t capacity) {
  internal_check(rows == 1 || length == 1, "with several rows, each row must have a length of one token");
  Program program(run.sharding.mesh(), choose_among(run.target.kernels));
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  Cache cache{cache_arrays(run), {}, {}, {}};
  std::vector<Partition> partitions;
  for (const CacheArray& array : cache.kinds) {
    const Shape shape = cache_shape(run, array, rows, capacity);
    partitions.push_back(cache_partition(run, array, shape));
    cache.arrays.push_back(program.input(cache_input(array), shape, partitions.back()));
  }
  const Tensor filled = program.input("filled", {DType::kI32, {rows}}), last = program.input("last", {DType::kI32, {}});
  ForwardOptions options;
  if (!run.adapter.side_by_side.empty())
    options.row_scales = program.input("row_scales", {DType::kF32, {rows, run.adapter.lora->rank}});
  Forward f = make_forward(run, weights, options);
  f.tokens = program.input("tokens", {DType::kI32, {rows, length}});
  f.positions = expand(iota({DType::kI32, {length}}, 0), 0) + expand(filled, 1);
  if (run.model.config.rope_turn() > 0) f.lengths = program.input("total", {DType::kI32, {rows}});
  cache.filled = filled;
  cache.real = last + 1.0;
  f.cache = cache;
  const Tensor hidden_BTD = run.model.family->forward(f);
  const Tensor zero = constant(0, DType::kI32);
  const Tensor hidden_B1D = dynamic_slice(hidden_BTD, {zero, last, zero}, {rows, 1, hidden_BTD.dim(2)});
  for (size_t i = 0; i < cache.kinds.size(); ++i)
    program.output(cache_input(cache.kinds[i]), f.cache->arrays[i], partitions[i], cache_input(cache.kinds[i]));
  program.output("logits", reshape(logits(f, hidden_B1D, head_of(run.model, weights)), {rows, -1}));
  return program;
}

Program build_growth(const Run& run, int64_t rows, int64_t from, int64_t to) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  for (const CacheArray& array : cache_arrays(run)) {
    if (!array.has_positions()) continue;
    const Shape small = cache_shape(run, array, rows, from), large = cache_shape(run, array, rows, to);
    const Tensor old = program.input(cache_input(array), small, cache_partition(run, array, small));
    Dims none(small.dims.size(), 0), more = none;
    for (size_t d = 0; d < array.dims.size(); ++d)
      if (array.dims[d] < 0) more[d + 1] = to - from;
    program.output(cache_input(array), pad(old, none, more), cache_partition(run, array, large));
  }
  return program;
}

Program build_join(const Run& run, int64_t rows, int64_t capacity, int64_t one_capacity) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  const Tensor row = program.input("row", {DType::kI32, {}}), zero = constant(0, DType::kI32);
  for (const CacheArray& array : cache_arrays(run)) {
    const Shape all = cache_shape(run, array, rows, capacity), one = cache_shape(run, array, 1, one_capacity);
    const Partition partition = cache_partition(run, array, all);
    const Tensor old = program.input(cache_input(array), all, partition);
    const Tensor own = program.input("one/" + cache_input(array), one, cache_partition(run, array, one));
    std::vector<Tensor> at(all.dims.size(), zero);
    at[1] = row;
    program.output(cache_input(array), dynamic_update_slice(old, own, at), partition, cache_input(array));
  }
  return program;
}

}  // namespace fettle
