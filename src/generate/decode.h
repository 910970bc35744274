// Defines Generator, which computes the logits of the next token. The Generator keeps the keys and values of earlier
// tokens on the devices.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "generate/decode_programs.h"
#include "programs/devices.h"
#include "run/run.h"
#include "step/state/train_state.h"

namespace fettle {

// Returns whether no logit is a finite number. Then keys and values in the cache may not be finite either. Other
// sequences must not use this cache, even where they mask it: attention multiplies a masked value by 0, and 0 times NaN
// is NaN.
bool are_broken(std::span<const float> logits);

// Generates one sequence at a time. The tokens of a prompt are computed in pieces of 1, 16, 32, ... 512 tokens. Each
// pair of a piece length and a cache capacity (64, 128, ... max_length() positions) has its own program, which is
// compiled at first use.
//
// Family::cache lists the arrays of the cache, usually keys and values. The Generator remembers which tokens the cache
// contains. For each sequence, it computes only the tokens that the cache does not have. It always computes the last
// token. Some families have states from which tokens cannot be removed, such as a recurrent state. For these families,
// the cache is used only if the sequence begins with all cached tokens and has at least one more token. Otherwise, the
// Generator computes the whole sequence again. If the run has adapters side by side, the base and each adapter have
// their own cache. The caches of the four of them that were used last are kept.
class Generator {
 public:
  // Reads frozen/* and trained/* of `state`. `state` and `devices` must outlive the Generator.
  Generator(Devices& devices, const Run& run, TrainState& state);

  // Returns the f32 logits [vocab_size] of the token after `ids`. Throws UserError when `ids` is empty, has an id
  // outside of the vocabulary, or has more than max_length() ids. Throws DeviceError or DoesNotFit when a program
  // fails. If a program fails or the logits are broken, the adapter's cache is empty afterwards. Here and below,
  // `adapter` is the number of an adapter in AdapterSpec::side_by_side.
  std::vector<float> logits(std::span<const int32_t> ids, int64_t adapter = kNoAdapter);

  // Returns how many tokens at the start of `ids` are in the cache, so that logits() need not compute them. The last
  // token never counts, because logits() always computes it. Returns 0 if logits() replaces the cache by a smaller one,
  // because a much longer sequence left it.
  int64_t known(std::span<const int32_t> ids, int64_t adapter = kNoAdapter) const;

  // Makes later calls of logits() give their cache at least `length` positions (at most max_length()), so that the
  // cache need not grow during a reply.
  void reserve(int64_t length) { reserved_ = length; }
  // Forgets all tokens. Call it when the weights have changed.
  void clear() {
    caches_.clear();
    used_.clear();
  }

  int64_t max_length() const { return run_.model.config.max_position_embeddings; }
  // These functions describe an adapter's cache: the number of its positions, and its arrays, which have one row.
  int64_t capacity(int64_t adapter = kNoAdapter) const;
  CacheBuffers& cache(int64_t adapter = kNoAdapter) { return caches_[adapter].arrays; }

 private:
  struct Kept {
    CacheBuffers arrays;
    int64_t capacity = 0;      // positions
    std::vector<int32_t> ids;  // the tokens of the first positions
  };
  int64_t known(const Kept& cache, std::span<const int32_t> ids) const;
  bool is_too_large(const Kept& cache, int64_t count) const;
  void make_room(Kept& cache, int64_t positions);
  DeviceBuffer run_piece(Kept& cache, std::span<const int32_t> ids, int64_t length, int64_t total, int64_t adapter);
  const Executable& piece_program(int64_t length, int64_t capacity);
  const Executable& growth_program(int64_t from, int64_t to);

  Devices& devices_;
  Run run_;  // the result of with_unsplit_rows, because a batch has one row
  TrainState& state_;
  int64_t reserved_ = 0;
  std::map<int64_t, Kept> caches_;  // by adapter; at most kMostCaches
  std::vector<int64_t> used_;       // the adapters of caches_, the most recently used one last
  std::map<std::pair<int64_t, int64_t>, Executable> pieces_, growths_;
};

}  // namespace fettle
