#include "generate/decode.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "programs/layouts.h"

namespace fettle {
namespace {

constexpr int64_t kShortestPiece = 16, kLongestPiece = 512;
constexpr size_t kMostCaches = 4;  // largest number of models (the base or an adapter) whose caches are kept

// Returns the length of the next piece when `left` tokens remain. Normally, it is the smallest piece length that is at
// least `left`, but at most 512. The positions after `left` are padding. No token attends to padding, and later pieces
// overwrite it. If this piece does not fit into `room` positions, returns the largest piece length that is at most
// `left`.
int64_t piece_length(int64_t left, int64_t room) {
  if (left == 1) return 1;
  int64_t length = kShortestPiece;
  while (length < left && length < kLongestPiece) length *= 2;
  if (length <= room) return length;
  while (length >= kShortestPiece && length > left) length /= 2;
  return length >= kShortestPiece ? length : 1;
}

// Returns whether the last tokens can be dropped from the cache.
bool goes_back(const Run& run) {
  const std::vector<CacheArray> arrays = cache_arrays(run);
  return std::ranges::all_of(arrays, [](const CacheArray& array) { return array.has_positions(); });
}

DeviceBuffer scalar(const Devices& devices, int64_t value) {
  return replicate(devices, HostArray::from<int32_t>({DType::kI32, {}}, {static_cast<int32_t>(value)}));
}

}  // namespace

bool are_broken(std::span<const float> logits) {
  return std::ranges::none_of(logits, [](float logit) { return std::isfinite(logit); });
}

Generator::Generator(Devices& devices, const Run& run, TrainState& state)
    : devices_(devices), run_(with_unsplit_rows(run)), state_(state) {}

const Executable& Generator::piece_program(int64_t length, int64_t capacity) {
  const auto at = pieces_.find({length, capacity});
  if (at != pieces_.end()) return at->second;
  return pieces_.emplace(std::pair{length, capacity}, devices_.compile(build_piece(run_, 1, length, capacity)))
      .first->second;
}

const Executable& Generator::growth_program(int64_t from, int64_t to) {
  const auto at = growths_.find({from, to});
  if (at != growths_.end()) return at->second;
  return growths_.emplace(std::pair{from, to}, devices_.compile(build_growth(run_, 1, from, to))).first->second;
}

void Generator::make_room(Kept& cache, int64_t positions) {
  if (positions <= cache.capacity) return;
  const int64_t capacity = capacity_for(positions, max_length());
  if (!cache.ids.empty()) {
    Bindings inputs;
    for (const CacheArray& array : cache_arrays(run_))
      if (array.has_positions()) inputs[cache_input(array)] = &cache.arrays.at(cache_input(array));
    std::map<std::string, DeviceBuffer> grown = run_program(growth_program(cache.capacity, capacity), inputs);
    for (auto& [name, buffer] : grown) cache.arrays.insert_or_assign(name, std::move(buffer));
    cache.capacity = capacity;
    return;
  }
  cache = {};  // frees the old cache before the new one is allocated
  cache.arrays = empty_cache(devices_, run_, 1, capacity);
  cache.capacity = capacity;
}

DeviceBuffer Generator::run_piece(Kept& cache, std::span<const int32_t> ids, int64_t length, int64_t total,
                                  int64_t adapter) {
  std::vector<int32_t> padded(ids.begin(), ids.end());
  padded.resize(static_cast<size_t>(length), 0);
  DeviceBuffer tokens = replicate(devices_, HostArray::from<int32_t>({DType::kI32, {1, length}}, padded));
  DeviceBuffer filled =
      replicate(devices_, HostArray::from<int32_t>({DType::kI32, {1}}, {static_cast<int32_t>(cache.ids.size())}));
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
  std::optional<DeviceBuffer> scales = row_scales(devices_, run_, {adapter});
  if (scales) inputs["row_scales"] = &*scales;
  for (auto& [name, buffer] : cache.arrays) inputs[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run_program(piece_program(length, cache.capacity), inputs);
  for (auto& [name, buffer] : cache.arrays) buffer = std::move(outputs.at(name));
  cache.ids.insert(cache.ids.end(), ids.begin(), ids.end());
  return std::move(outputs.at("logits"));
}

int64_t Generator::known(std::span<const int32_t> ids, int64_t adapter) const {
  const auto at = caches_.find(adapter);
  return at == caches_.end() ? 0 : known(at->second, ids);
}

int64_t Generator::capacity(int64_t adapter) const {
  const auto at = caches_.find(adapter);
  return at == caches_.end() ? 0 : at->second.capacity;
}

bool Generator::is_too_large(const Kept& cache, int64_t count) const {
  return has_too_much_room(cache.capacity, std::max(count, reserved_), max_length());
}

int64_t Generator::known(const Kept& cache, std::span<const int32_t> ids) const {
  if (ids.empty()) return 0;
  const auto held = static_cast<int64_t>(cache.ids.size()), count = static_cast<int64_t>(ids.size());
  if (is_too_large(cache, count)) return 0;
  // Cached keys cannot be reused if they were rotated with the rope frequencies for another length.
  const int64_t turn = run_.model.config.rope_turn();
  if (turn > 0 && (held > turn) != (count > turn)) return 0;
  // The last token is always computed, because the caller wants its logits.
  const auto same = std::mismatch(ids.begin(), ids.end() - 1, cache.ids.begin(), cache.ids.end()).first;
  const int64_t kept = same - ids.begin();
  return kept < held && !goes_back(run_) ? 0 : kept;
}

std::vector<float> Generator::logits(std::span<const int32_t> ids, int64_t adapter) {
  const auto count = static_cast<int64_t>(ids.size());
  if (count == 0) throw UserError("the prompt is empty; give at least one token to continue");
  if (count > max_length())
    throw UserError("the prompt has {} tokens, more than the model's max_position_embeddings of {}; shorten the prompt",
                    count, max_length());
  for (const int32_t id : ids)
    if (id < 0 || id >= run_.model.config.vocab_size)
      throw UserError("token id {} is not in the model's vocabulary of {}; is the tokenizer from another model?", id,
                      run_.model.config.vocab_size);
  std::erase(used_, adapter);
  used_.push_back(adapter);
  if (used_.size() > kMostCaches) {
    caches_.erase(used_.front());
    used_.erase(used_.begin());
  }
  Kept cache = std::exchange(caches_[adapter], {});  // put back only if all programs succeed with finite values
  const auto kept = static_cast<size_t>(known(cache, ids));
  if ((kept < cache.ids.size() && !goes_back(run_)) || is_too_large(cache, count)) cache = {};
  cache.ids.resize(kept);
  DeviceBuffer logits;
  for (int64_t done = static_cast<int64_t>(cache.ids.size()); done < count;) {
    const int64_t length = piece_length(count - done, max_length() - done);
    make_room(cache, std::max(done + length, std::min(reserved_, max_length())));
    const int64_t real = std::min(length, count - done);
    logits =
        run_piece(cache, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(real)), length, count, adapter);
    done += real;
  }
  const HostArray values = logits.download();
  if (!are_broken(values.as<float>())) caches_[adapter] = std::move(cache);
  return {values.as<float>().begin(), values.as<float>().end()};
}

}  // namespace fettle
