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

Shape cache_shape(const Run& run, int64_t capacity) {
  const ModelConfig& c = run.model.config;
  return {run.compute, {c.num_hidden_layers, 1, capacity, c.num_key_value_heads, c.head_dim}};
}

Partition cache_partition(const Run& run, const Shape& shape) {
  return run.sharding.partition({"layers", "batch", "", "act_kv_heads", ""}, shape.dims, "the key-value cache");
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
// last real token), total where rope depends on it (i32 [1]: tokens of the whole sequence), cache/keys and cache/values
// (donated). Outputs: the cache, and the logits f32 [V] after the last real token.
Program build_piece(const Run& run, int64_t length, int64_t capacity) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  const Shape shape = cache_shape(run, capacity);
  const Partition partition = cache_partition(run, shape);
  const Tensor keys = program.input("cache/keys", shape, partition);
  const Tensor values = program.input("cache/values", shape, partition);
  const Tensor filled = program.input("filled", {DType::kI32, {}}), last = program.input("last", {DType::kI32, {}});
  Forward f = make_forward(run, weights);
  f.tokens = program.input("tokens", {DType::kI32, {1, length}});
  f.positions = expand(iota({DType::kI32, {length}}, 0) + filled, 0);
  if (run.model.config.rope_turn() > 0) f.lengths = program.input("total", {DType::kI32, {1}});
  f.cache = KvCache{keys, values, filled};
  const Tensor hidden_BTD = run.model.family->forward(f);
  const Tensor zero = constant(0, DType::kI32);
  const Tensor hidden_D = reshape(dynamic_slice(hidden_BTD, {zero, last, zero}, {1, 1, hidden_BTD.dim(2)}), {-1});
  program.output("cache/keys", f.cache->keys, partition, "cache/keys");
  program.output("cache/values", f.cache->values, partition, "cache/values");
  program.output("logits", logits(f, hidden_D, head_of(run.model, weights)));
  return program;
}

Program build_growth(const Run& run, int64_t from, int64_t to) {
  Program program(run.sharding.mesh());
  BuildScope scope(program.block());
  const Shape small = cache_shape(run, from), large = cache_shape(run, to);
  for (const char* name : {"cache/keys", "cache/values"}) {
    const Tensor old = program.input(name, small, cache_partition(run, small));
    program.output(name, pad(old, {0, 0, 0, 0, 0}, {0, 0, to - from, 0, 0}), cache_partition(run, large));
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

void Generator::make_room(Cache& cache, int64_t positions) {
  if (positions <= cache.capacity()) return;
  int64_t capacity = kSmallestCapacity;
  while (capacity < positions) capacity *= 2;
  capacity = std::min(capacity, max_length());
  if (!cache.ids.empty()) {
    Bindings inputs{{"cache/keys", &cache.keys}, {"cache/values", &cache.values}};
    std::map<std::string, DeviceBuffer> grown = run_program(growth_program(cache.capacity(), capacity), inputs);
    cache.keys = std::move(grown.at("cache/keys"));
    cache.values = std::move(grown.at("cache/values"));
    return;
  }
  cache = {};  // frees the old cache before the new one is allocated
  const Shape shape = cache_shape(run_, capacity);
  const Layout layout = layout_of(cache_partition(run_, shape), shape.dims, run_.sharding.mesh());
  cache.keys = DeviceBuffer::zeros(devices_.client(), shape, layout);
  cache.values = DeviceBuffer::zeros(devices_.client(), shape, layout);
}

DeviceBuffer Generator::run_piece(Cache& cache, std::span<const int32_t> ids, int64_t length, int64_t total) {
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
  inputs["cache/keys"] = &cache.keys;
  inputs["cache/values"] = &cache.values;
  std::map<std::string, DeviceBuffer> outputs = run_program(piece_program(length, cache.capacity()), inputs);
  cache.keys = std::move(outputs.at("cache/keys"));
  cache.values = std::move(outputs.at("cache/values"));
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
  Cache cache = std::exchange(cache_, {});  // restored only after success
  // Keys that were rotated with other rope frequencies cannot be reused.
  const auto held = static_cast<int64_t>(cache.ids.size()), turn = run_.model.config.rope_turn();
  if (turn > 0 && (held > turn) != (count > turn)) cache.ids.clear();
  // The last token always runs, because the caller wants its logits.
  const auto known = std::mismatch(ids.begin(), ids.end() - 1, cache.ids.begin(), cache.ids.end()).first;
  cache.ids.resize(static_cast<size_t>(known - ids.begin()));
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
