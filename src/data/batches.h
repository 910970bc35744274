// Defines Batches: the seeded order of examples, cut into global batches of dense arrays.
//
// The order depends on the seed, the epoch and the examples alone, never on the mesh or on threads. The position is one
// number (the step), so resuming is seeking.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/host_array.h"
#include "data/example.h"

namespace fettle {

// One optimizer step's rows: A micro-batches of B rows of T positions, int32 arrays [A, B, T].
struct Batch {
  HostArray tokens;                            // padded with pad_id
  HostArray targets;                           // targets[t] = label of token t+1, kIgnore where not trained
  HostArray positions;                         // 0.. within each document; 0 in padding
  HostArray segments;                          // document number in the row from 1; 0 in padding
  int64_t trained_tokens = 0;                  // targets that are not kIgnore, over the whole batch
  int64_t real_tokens = 0;                     // tokens that are not padding
  std::vector<std::string> sources;            // [A * B] where each row came from; "" for a filler row
};

struct BatchOptions {
  int64_t micro_batches = 1;                   // A: gradient_accumulation_steps
  int64_t rows = 1;                            // B: rows of a micro-batch over all devices
  int64_t max_length = 2048;                   // T never exceeds it (cutoff_len)
  bool packing = false;                        // best-fit several examples into one row
  bool shuffle = true;
  uint64_t seed = 42;
  int32_t pad_id = 0;
  // T is the smallest of these that holds the step's longest row: few distinct shapes, few compilations.
  // Empty: max_length, and its halves down to 64 (max_length itself is rounded up to a multiple of 8).
  std::vector<int64_t> lengths;
};

class Batches {
 public:
  // Keeps the examples by reference. Throws UserError when there is none, or none with a trained token.
  Batches(const std::vector<Example>& examples, BatchOptions options);

  int64_t steps_per_epoch() const;             // the last step of an epoch may be part filler rows
  int64_t examples() const;
  // The batch of optimizer step `step` (0-based, counted over epochs). Pure: same step, same bytes.
  Batch at(int64_t step) const;
  // Share of the row positions that hold real tokens, over one epoch.
  double use() const;

 private:
  struct Row {
    std::vector<int64_t> examples;
  };
  std::vector<Row> rows_of_epoch(int64_t epoch) const;
  const std::vector<Example>& examples_;
  BatchOptions options_;
  int64_t rows_per_epoch_ = 0;
  mutable int64_t cached_epoch_ = -1;
  mutable std::vector<Row> cached_rows_;
};

}  // namespace fettle
