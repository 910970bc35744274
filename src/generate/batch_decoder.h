// Defines BatchDecoder, which decodes several sequences at once. A step reads the weights only once for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "generate/decode.h"

namespace fettle {

// Each sequence occupies one row of the batch. A sequence may join and leave at any time, without waiting for the
// others. The logits of a row depend only on the row's own tokens, on its adapter and on the number of rows.
class BatchDecoder {
 public:
  // Reads frozen/* and trained/* of `state`. `state` and `devices` must outlive the decoder. `rows` is above 1.
  BatchDecoder(Devices& devices, const Run& run, TrainState& state, int64_t rows);

  // Returns false for a model whose rope depends on the length of the sequence (longrope). Such a model decodes one
  // sequence at a time.
  static bool supports(const Run& run) {
    const int64_t turn = run.model.config.rope_turn();
    return turn == 0 || turn >= run.model.config.max_position_embeddings;
  }

  int64_t rows() const { return rows_; }
  int64_t max_length() const { return one_.max_length(); }
  int64_t capacity() const { return capacity_; }
  // Returns how many tokens of a prompt join() has to compute. Here and below, `longest` is the largest length that the
  // sequence is expected to reach; a wrong value only costs time. `adapter` is the number of an adapter in
  // AdapterSpec::side_by_side.
  int64_t unread(std::span<const int32_t> ids, int64_t longest, int64_t adapter = kNoAdapter) {
    one_.reserve(longest);
    return static_cast<int64_t>(ids.size()) - one_.known(ids, adapter);
  }
  // Frees the cache if a much longer sequence than `longest` left it. No row may be in use.
  void shrink(int64_t longest);
  // Computes the first tokens of a prompt before join() takes the whole prompt, so that other rows can step in between.
  // Throws the same errors as Generator::logits, and UserError when the logits are broken.
  void read(std::span<const int32_t> first_ids, int64_t longest, int64_t adapter = kNoAdapter);
  // Puts the sequence `ids` into a row, in place of the row's earlier sequence. Returns the logits [vocab_size] of the
  // sequence's next token. Computes only the last unread(ids, longest, adapter) tokens, because an earlier read() or
  // join() with this adapter has computed the tokens before them. If the logits are broken, the row must not step.
  // Throws the same errors as Generator::logits.
  std::vector<float> join(int64_t row, std::span<const int32_t> ids, int64_t longest, int64_t adapter = kNoAdapter);
  // Appends one token to each row in `next`, a list of (row, token). Returns the logits [vocab_size] of the rows' next
  // tokens, in the same order. A row with broken logits is cleared and must not step again. Throws DeviceError or
  // DoesNotFit.
  std::vector<std::vector<float>> step(const std::vector<std::pair<int64_t, int32_t>>& next);

 private:
  void make_room(int64_t positions);
  void put(int64_t row, CacheBuffers& one, int64_t one_capacity);
  void clear(int64_t row);

  Devices& devices_;
  Run run_;
  TrainState& state_;
  int64_t rows_;
  Generator one_;  // runs a sequence's prompt before the sequence's first step
  CacheBuffers cache_;
  int64_t capacity_ = 0;           // positions; 0: there is no cache
  std::vector<int32_t> lengths_;   // tokens of each row in the cache
  std::vector<int64_t> adapters_;  // the adapter of each row
  std::map<int64_t, Executable> steps_;
  std::map<std::pair<int64_t, int64_t>, Executable> growths_, joins_;
};

}  // namespace fettle
