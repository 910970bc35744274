// Defines Generator: logits of the next token, with keys and values of the tokens before kept on the devices.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "programs/devices.h"
#include "run/run.h"
#include "step/state/train_state.h"

namespace fettle {

// One sequence at a time. Its programs are compiled when first needed: one for each pair of a piece's length (1, 16,
// 32,
// ... 512 tokens) and the cache's capacity (64, 128, ... max_length() positions).
//
// The cache lies in run.compute as [layers, 1, capacity, key heads, head_dim], split over tp by heads. It remembers
// which tokens it holds: continuing a sequence costs the new tokens only, going back to an earlier point nothing.
class Generator {
 public:
  // Reads frozen/* and trained/* of `state`, which must outlive it, as must `devices`.
  Generator(Devices& devices, const Run& run, TrainState& state);

  // f32 logits [vocab_size] of the token after `ids`. Throws UserError when there is no id, one outside of the
  // vocabulary or more than max_length(); DeviceError or DoesNotFit of the run, after which the cache is empty.
  std::vector<float> logits(std::span<const int32_t> ids);

  // Room for `length` positions (at most max_length()) from the next call on, so that the cache need not grow on the
  // way.
  void reserve(int64_t length) { reserved_ = length; }
  // Forgets all tokens; for when the weights have changed.
  void clear() { cache_ = {}; }

  int64_t max_length() const { return run_.model.config.max_position_embeddings; }
  int64_t cached() const { return static_cast<int64_t>(cache_.ids.size()); }  // tokens in the cache
  int64_t capacity() const { return cache_.capacity(); }

 private:
  struct Cache {
    DeviceBuffer keys, values;
    std::vector<int32_t> ids;  // whose keys and values are the first ones

    int64_t capacity() const { return keys.empty() ? 0 : keys.shape().dims[2]; }
  };
  void make_room(Cache& cache, int64_t positions);
  DeviceBuffer run_piece(Cache& cache, std::span<const int32_t> ids, int64_t length, int64_t total);
  const Executable& piece_program(int64_t length, int64_t capacity);
  const Executable& growth_program(int64_t from, int64_t to);

  Devices& devices_;
  Run run_;  // with a batch of one, which no mesh axis splits
  TrainState& state_;
  int64_t reserved_ = 0;
  Cache cache_;
  std::map<std::pair<int64_t, int64_t>, Executable> pieces_, growths_;
};

}  // namespace fettle
