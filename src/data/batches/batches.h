// Defines Batches: the seeded order of examples, cut into global batches of dense arrays.
//
// The order depends on the seed, the epoch and the examples alone, never on the mesh or on threads. The position is one
// number (the step), so resuming is seeking.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arrays/host_array.h"
#include "data/store/examples.h"

namespace fettle {

// One optimizer step's rows: A micro-batches of B rows of T positions, int32 arrays [A, B, T].
struct Batch {
  HostArray tokens;            // padded with pad_id
  HostArray targets;           // targets[t] = label of token t+1 of the same document, kIgnore where not trained
  HostArray positions;         // 0.. within each document; 0 in padding
  HostArray segments;          // document number in the row from 1; 0 in padding
  HostArray preferences;       // [A, B]: each row's Preference as a number; 0 where it has none
  HostArray token_types;       // of stage cls: 1 for tokens of a pair's second text
  HostArray classes;           // of stage cls: f32 [A, B, classes a row]; 0 of filler and of rows without a label
  int64_t trained_tokens = 0;  // targets that are not kIgnore, over the whole batch; of stage cls its labelled rows
  int64_t real_tokens = 0;     // tokens that are not padding
  std::vector<std::string> sources;  // [A * B] where each row came from; "" for a filler row
};

struct BatchOptions {
  int64_t micro_batches = 1;  // A: gradient_accumulation_steps
  int64_t rows = 1;           // B: rows of a micro-batch over all devices
  int64_t max_length = 2048;  // longest example (cutoff_len); T never exceeds it, rounded up to the multiple
  int64_t multiple = 8;       // T is one of this number
  bool packing = false;       // best-fit several examples into one row; they see nothing of each other
  bool pairs = false;         // examples 2n and 2n+1 are a pair and stay together: rows 2k and 2k+1 of a micro-batch
  bool mismatched = false;    // behind row 2k its prompt with the reply of the step's next, or else the set's (KTO)
  bool shuffle = true;        // another order each epoch; else the examples' own
  bool like_length = true;    // shuffled and not packed: steps of rows of like length, to pad less
  uint64_t seed = 42;
  int32_t pad_id = 0;
  // T is the smallest of these that holds the step's longest row: few distinct shapes, few compilations.
  // Empty: max_length rounded up to the multiple, and its halves down to 64.
  std::vector<int64_t> lengths = {};
};

// What a position in the data needs to be the same place again.
struct DataIdentity {
  int64_t rows = 0;    // of an epoch
  std::string digest;  // of the examples' tokens and labels, in order
};

// Safe to use from several threads at once.
class Batches {
 public:
  // With pairs or mismatched rows, B is even. Throws UserError when there is none, or none with a trained token, for an
  // example longer than the largest length, packing with pairs or mismatched rows, and one mismatched row alone.
  Batches(Examples examples, BatchOptions options);

  int64_t steps_per_epoch() const;  // the last step of an epoch may be part filler rows
  int64_t examples() const;
  int64_t rows() const;                         // rows of an epoch (pairs count as one), filler not counted
  const std::vector<int64_t>& lengths() const;  // every T that at() may give, ascending
  DataIdentity identity() const;
  // The batch of optimizer step `step` (0-based, counted over epochs). Pure: same step, same bytes.
  Batch at(int64_t step) const;
  // Share of the positions of an epoch's rows (filler excepted) that hold real tokens.
  double use() const;

 private:
  void pack();
  // Steps first .. first + steps that are made of the same rows, which are sorted by length.
  struct Window {
    int64_t first = 0, steps = 0;
    std::vector<int64_t> rows;
    uint64_t stream = 0;  // of the seed, for the order of these steps
  };
  std::optional<Window> window_of(int64_t step) const;
  // The rows of `step`, in order; fewer than rows_of_steps() at an epoch's end.
  std::vector<int64_t> rows_of_step(int64_t step, const std::optional<Window>& window) const;
  int64_t row_at(int64_t epoch, int64_t i) const;
  std::vector<int64_t> examples_of(int64_t row) const;
  int64_t rows_of_steps() const { return options_.micro_batches * options_.rows / rows_together(); }
  int64_t rows_together() const { return options_.pairs || options_.mismatched ? 2 : 1; }
  int64_t row_length(int64_t row) const;
  // What stands in one row of a batch: examples one behind another, or a prompt with another's reply.
  struct Document {
    int64_t example;
    std::span<const Token> tokens, reply = {};
    int64_t length() const { return static_cast<int64_t>(tokens.size() + reply.size()); }
    Token operator[](size_t i) const { return i < tokens.size() ? tokens[i] : reply[i - tokens.size()]; }
  };
  using RowOfBatch = std::vector<Document>;
  std::vector<RowOfBatch> laid_out(const std::vector<int64_t>& rows) const;
  Document mismatched(int64_t row, int64_t other) const;
  int64_t padded_length(const std::vector<RowOfBatch>& rows) const;

  Examples examples_;
  BatchOptions options_;
  // With packing, row i holds the examples row_examples_[row_starts_[i] .. row_starts_[i + 1]); else the example i.
  std::vector<int64_t> row_starts_, row_examples_;
};

// Batches in the order of training: while the device works on one, the next is made on another thread.
class BatchesAhead {
 public:
  explicit BatchesAhead(const Batches& batches) : batches_(batches) {}  // kept by reference
  // As Batches::at; quick when it is asked for the steps in order.
  Batch at(int64_t step);

 private:
  const Batches& batches_;
  int64_t coming_step_ = -1;
  std::future<Batch> coming_;
};

}  // namespace fettle
