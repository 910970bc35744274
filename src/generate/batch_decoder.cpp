#include "generate/batch_decoder.h"

#include <algorithm>

#include "base/error.h"
#include "generate/sample.h"

namespace fettle {
namespace {

template <typename Key, typename Build>
const Executable& compiled(std::map<Key, Executable>& programs, const Key& key, Devices& devices, const Build& build) {
  const auto at = programs.find(key);
  return at != programs.end() ? at->second : programs.emplace(key, devices.compile(build())).first->second;
}

DeviceBuffer numbers(const Devices& devices, const Dims& dims, const std::vector<int32_t>& values) {
  return replicate(devices, HostArray::from<int32_t>({DType::kI32, dims}, values));
}

}  // namespace

BatchDecoder::BatchDecoder(Devices& devices, const Run& run, TrainState& state, int64_t rows)
    : devices_(devices),
      run_(with_unsplit_rows(run)),
      state_(state),
      rows_(rows),
      one_(devices, run, state),
      lengths_(rows, 0),
      adapters_(rows, kNoAdapter) {
  internal_check(rows > 1 && supports(run),
                 "a batch needs several rows and a family whose sequences can be decoded together");
}

void BatchDecoder::make_room(int64_t positions) {
  positions = std::min(positions, max_length());
  if (positions <= capacity_) return;
  const int64_t capacity = capacity_for(positions, max_length());
  CacheBuffers old = std::exchange(cache_, {});
  const int64_t before = std::exchange(capacity_, 0);
  if (before == 0) {
    cache_ = empty_cache(devices_, run_, rows_, capacity);
  } else {
    Bindings inputs;
    for (const CacheArray& array : cache_arrays(run_))
      if (array.has_positions()) inputs[cache_input(array)] = &old.at(cache_input(array));
    CacheBuffers grown = run_program(
        compiled(growths_, {before, capacity}, devices_, [&] { return build_growth(run_, rows_, before, capacity); }),
        inputs);
    for (auto& [name, buffer] : grown) old.insert_or_assign(name, std::move(buffer));
    cache_ = std::move(old);
  }
  capacity_ = capacity;
}

void BatchDecoder::shrink(int64_t longest) {
  if (!has_too_much_room(capacity_, longest, max_length())) return;
  cache_.clear();
  capacity_ = 0;
}

void BatchDecoder::read(std::span<const int32_t> first_ids, int64_t longest, int64_t adapter) {
  one_.reserve(longest);
  if (are_broken(one_.logits(first_ids, adapter))) throw UserError("{}", kBrokenLogits);
}

// Copies the cache of one sequence into a row.
void BatchDecoder::put(int64_t row, CacheBuffers& one, int64_t one_capacity) {
  DeviceBuffer place = numbers(devices_, {}, {static_cast<int32_t>(row)});
  Bindings inputs{{"row", &place}};
  for (auto& [name, buffer] : cache_) inputs[name] = &buffer;
  for (auto& [name, buffer] : one) inputs["one/" + name] = &buffer;
  cache_ = run_program(compiled(joins_, {capacity_, one_capacity}, devices_,
                                [&] { return build_join(run_, rows_, capacity_, one_capacity); }),
                       inputs);
}

void BatchDecoder::clear(int64_t row) {
  CacheBuffers empty = empty_cache(devices_, run_, 1, capacity_);
  put(row, empty, capacity_);
  lengths_[static_cast<size_t>(row)] = 0;
}

std::vector<float> BatchDecoder::join(int64_t row, std::span<const int32_t> ids, int64_t longest, int64_t adapter) {
  one_.reserve(longest);
  std::vector<float> logits = one_.logits(ids, adapter);
  if (are_broken(logits)) return logits;
  const int64_t one_capacity = one_.capacity(adapter);
  make_room(std::max(one_capacity, longest));
  put(row, one_.cache(adapter), one_capacity);
  lengths_[static_cast<size_t>(row)] = static_cast<int32_t>(ids.size());
  adapters_[static_cast<size_t>(row)] = adapter;
  return logits;
}

std::vector<std::vector<float>> BatchDecoder::step(const std::vector<std::pair<int64_t, int32_t>>& next) {
  std::vector<int32_t> ids(static_cast<size_t>(rows_), 0), filled(static_cast<size_t>(rows_), 0);
  int64_t longest = 0;
  for (const auto& [row, id] : next) {
    const auto r = static_cast<size_t>(row);
    ids[r] = id;
    filled[r] = lengths_[r];
    longest = std::max<int64_t>(longest, lengths_[r] + 1);
  }
  make_room(longest);
  DeviceBuffer tokens = numbers(devices_, {rows_, 1}, ids), lengths = numbers(devices_, {rows_}, filled),
               last = numbers(devices_, {}, {0});
  Bindings inputs = state_.bindings();
  inputs["tokens"] = &tokens;
  inputs["filled"] = &lengths;
  inputs["last"] = &last;
  std::optional<DeviceBuffer> scales = row_scales(devices_, run_, adapters_);
  if (scales) inputs["row_scales"] = &*scales;
  for (auto& [name, buffer] : cache_) inputs[name] = &buffer;
  const Executable& program =
      compiled(steps_, capacity_, devices_, [&] { return build_piece(run_, rows_, 1, capacity_); });
  CacheBuffers outputs = run_program(program, inputs);
  const HostArray values = outputs.at("logits").download();
  for (auto& [name, buffer] : cache_) buffer = std::move(outputs.at(name));
  const std::span<const float> all = values.as<float>();
  const auto vocab = static_cast<size_t>(run_.model.config.vocab_size);
  std::vector<std::vector<float>> out;
  for (const auto& [row, id] : next) {
    const auto r = static_cast<size_t>(row);
    ++lengths_[r];
    const std::span<const float> own = all.subspan(r * vocab, vocab);
    out.emplace_back(own.begin(), own.end());
    if (are_broken(own)) clear(row);
  }
  return out;
}

}  // namespace fettle
