#include "generate/decode.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "programs/signature.h"
#include "step/forward.h"

namespace fettle {
namespace {

constexpr int64_t kShortestPiece = 16, kLongestPiece = 512, kSmallestCapacity = 64;

// The same run, with the shardings of a batch of one row.
Run for_one_row(Run run) {
  run.sharding = run.sharding.for_one_row();
  return run;
}

std::vector<CacheArray> cache_arrays(const Run& run) {
  return run.model.family->cache(run.model.config);
}

std::string input_of(const CacheArray& array) {
  return "cache/" + array.name;
}

Shape cache_shape(const Run& run, const CacheArray& array, int64_t capacity) {
  Shape shape{array.dtype.value_or(run.compute), {array.layers.count()}};
  for (const int64_t dim : array.dims) shape.dims.push_back(dim < 0 ? capacity : dim);
  return shape;
}

Partition cache_partition(const Run& run, const CacheArray& array, const Shape& shape) {
  LogicalAxes axes = array.axes;
  axes.insert(axes.begin(), "layers");
  return run.sharding.partition(axes, shape.dims, "the cache of " + array.name);
}

// Returns how many positions the next piece of `left` tokens takes: the next piece length, with padding, when that fits
// in `room`; else the longest one that needs no padding. Later pieces overwrite the padding, and no token attends to
// it.
int64_t piece_length(int64_t left, int64_t room) {
  if (left == 1) return 1;
  int64_t length = kShortestPiece;
  while (length < left && length < kLongestPiece) length *= 2;
  if (length <= room) return length;
  while (length >= kShortestPiece && length > left) length /= 2;
  return length >= kShortestPiece ? length : 1;
}

// Inputs: the weights, tokens i32 [1, length], filled (i32: positions in the cache), last (i32: place of the piece's
// last real token), total where rope depends on it (i32 [1]: tokens of the whole sequence), the arrays of the cache
// (donated). Outputs: the cache, and the logits f32 [V] after the last real token.
Program build_piece(const Run& run, int64_t length, int64_t capacity) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  Cache cache{cache_arrays(run), {}, {}, {}};
  std::vector<Partition> partitions;
  for (const CacheArray& array : cache.kinds) {
    const Shape shape = cache_shape(run, array, capacity);
    partitions.push_back(cache_partition(run, array, shape));
    cache.arrays.push_back(program.input(input_of(array), shape, partitions.back()));
  }
  const Tensor filled = program.input("filled", {DType::kI32, {}}), last = program.input("last", {DType::kI32, {}});
  Forward f = make_forward(run, weights);
  f.tokens = program.input("tokens", {DType::kI32, {1, length}});
  f.positions = expand(iota({DType::kI32, {length}}, 0) + filled, 0);
  if (run.model.config.rope_turn() > 0) f.lengths = program.input("total", {DType::kI32, {1}});
  cache.filled = filled;
  cache.real = last + 1.0;
  f.cache = cache;
  const Tensor hidden_BTD = run.model.family->forward(f);
  const Tensor zero = constant(0, DType::kI32);
  const Tensor hidden_D = reshape(dynamic_slice(hidden_BTD, {zero, last, zero}, {1, 1, hidden_BTD.dim(2)}), {-1});
  for (size_t i = 0; i < cache.kinds.size(); ++i)
    program.output(input_of(cache.kinds[i]), f.cache->arrays[i], partitions[i], input_of(cache.kinds[i]));
  program.output("logits", logits(f, hidden_D, head_of(run.model, weights)));
  return program;
}

Program build_growth(const Run& run, int64_t from, int64_t to) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  for (const CacheArray& array : cache_arrays(run)) {
    if (!array.has_positions()) continue;
    const Shape small = cache_shape(run, array, from), large = cache_shape(run, array, to);
    const Tensor old = program.input(input_of(array), small, cache_partition(run, array, small));
    Dims none(small.dims.size(), 0), more = none;
    for (size_t d = 0; d < array.dims.size(); ++d)
      if (array.dims[d] < 0) more[d + 1] = to - from;
    program.output(input_of(array), pad(old, none, more), cache_partition(run, array, large));
  }
  return program;
}

DeviceBuffer scalar(const Devices& devices, int64_t value) {
  return replicate(devices, HostArray::from<int32_t>({DType::kI32, {}}, {static_cast<int32_t>(value)}));
}

}  // namespace

Generator::Generator(Devices& devices, const Run& run, TrainState& state)
    : devices_(devices), run_(for_one_row(run)), state_(state) {}

const Executable& Generator::piece_program(int64_t length, int64_t capacity) {
  const auto at = pieces_.find({length, capacity});
  if (at != pieces_.end()) return at->second;
  return pieces_.emplace(std::pair{length, capacity}, devices_.compile(build_piece(run_, length, capacity)))
      .first->second;
}

const Executable& Generator::growth_program(int64_t from, int64_t to) {
  const auto at = growths_.find({from, to});
  if (at != growths_.end()) return at->second;
  return growths_.emplace(std::pair{from, to}, devices_.compile(build_growth(run_, from, to))).first->second;
}

void Generator::make_room(Kept& cache, int64_t positions) {
  if (positions <= cache.capacity) return;
  int64_t capacity = kSmallestCapacity;
  while (capacity < positions) capacity *= 2;
  capacity = std::min(capacity, max_length());
  if (!cache.ids.empty()) {
    Bindings inputs;
    for (const CacheArray& array : cache_arrays(run_))
      if (array.has_positions()) inputs[input_of(array)] = &cache.arrays.at(input_of(array));
    std::map<std::string, DeviceBuffer> grown = run_program(growth_program(cache.capacity, capacity), inputs);
    for (auto& [name, buffer] : grown) cache.arrays.insert_or_assign(name, std::move(buffer));
    cache.capacity = capacity;
    return;
  }
  cache = {};  // frees the old cache before the new one is allocated
  for (const CacheArray& array : cache_arrays(run_)) {
    const Shape shape = cache_shape(run_, array, capacity);
    const Layout layout = layout_of(cache_partition(run_, array, shape), shape.dims, run_.sharding.mesh());
    cache.arrays.insert_or_assign(input_of(array), DeviceBuffer::zeros(devices_.client(), shape, layout));
  }
  cache.capacity = capacity;
}

DeviceBuffer Generator::run_piece(Kept& cache, std::span<const int32_t> ids, int64_t length, int64_t total) {
  std::vector<int32_t> padded(ids.begin(), ids.end());
  padded.resize(static_cast<size_t>(length), 0);
  DeviceBuffer tokens = replicate(devices_, HostArray::from<int32_t>({DType::kI32, {1, length}}, padded));
  DeviceBuffer filled = scalar(devices_, static_cast<int64_t>(cache.ids.size()));
  DeviceBuffer last = scalar(devices_, static_cast<int64_t>(ids.size()) - 1);
  Bindings inputs = state_.bindings();
  inputs["tokens"] = &tokens;
  inputs["filled"] = &filled;
  inputs["last"] = &last;
  DeviceBuffer totals;
  if (run_.model.config.rope_turn() > 0) {
    totals = replicate(devices_, HostArray::from<int32_t>({DType::kI32, {1}}, {static_cast<int32_t>(total)}));
    inputs["total"] = &totals;
  }
  for (auto& [name, buffer] : cache.arrays) inputs[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run_program(piece_program(length, cache.capacity), inputs);
  for (auto& [name, buffer] : cache.arrays) buffer = std::move(outputs.at(name));
  cache.ids.insert(cache.ids.end(), ids.begin(), ids.end());
  return std::move(outputs.at("logits"));
}

std::vector<float> Generator::logits(std::span<const int32_t> ids) {
  const auto count = static_cast<int64_t>(ids.size());
  if (count == 0) throw UserError("the prompt is empty; give at least one token to continue");
  if (count > max_length())
    throw UserError("the prompt has {} tokens, more than the model's max_position_embeddings of {}; shorten it", count,
                    max_length());
  for (const int32_t id : ids)
    if (id < 0 || id >= run_.model.config.vocab_size)
      throw UserError("token id {} is not in the model's vocabulary of {}; is the tokenizer from another model?", id,
                      run_.model.config.vocab_size);
  Kept cache = std::exchange(cache_, {});  // restored only after success
  // Keys that were rotated with other rope frequencies cannot be reused.
  const auto held = static_cast<int64_t>(cache.ids.size()), turn = run_.model.config.rope_turn();
  if (turn > 0 && (held > turn) != (count > turn)) cache.ids.clear();
  // The last token always runs, because the caller wants its logits.
  const auto known = std::mismatch(ids.begin(), ids.end() - 1, cache.ids.begin(), cache.ids.end()).first;
  const auto kept = static_cast<size_t>(known - ids.begin());
  const std::vector<CacheArray> arrays = cache_arrays(run_);
  const bool goes_back = std::ranges::all_of(arrays, [](const CacheArray& array) { return array.has_positions(); });
  if (kept < cache.ids.size() && !goes_back) cache = {};
  cache.ids.resize(std::min(kept, cache.ids.size()));
  DeviceBuffer logits;
  for (int64_t done = static_cast<int64_t>(cache.ids.size()); done < count;) {
    const int64_t length = piece_length(count - done, max_length() - done);
    make_room(cache, std::max(done + length, std::min(reserved_, max_length())));
    const int64_t real = std::min(length, count - done);
    logits = run_piece(cache, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(real)), length, count);
    done += real;
  }
  const HostArray values = logits.download();
  cache_ = std::move(cache);
  return {values.as<float>().begin(), values.as<float>().end()};
}

}  // namespace fettle
