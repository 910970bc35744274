// Defines BatchSpec: how examples are laid out in global batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

// Which sequences must be next to each other in a micro-batch.
enum class RowGrouping {
  kNone,            // each sequence stands alone
  kPairs,           // examples 2n and 2n + 1, a preference pair, become sequences 2k and 2k + 1
  kWithMismatched,  // sequence 2k + 1 has the prompt of sequence 2k and the reply of another row (for KTO)
  // Continuations of one prompt. An example without trained tokens is a prompt; the examples with trained tokens after
  // it continue it. They become one sequence: the prompt, then its continuations, which do not see each other.
  kBranches,
};

constexpr int64_t sequences_per_group(RowGrouping grouping) {
  return grouping == RowGrouping::kNone || grouping == RowGrouping::kBranches ? 1 : 2;
}

// How the sequences of a step are placed in its arrays. A line is one row of a micro-batch's arrays (layout.h).
enum class Lines {
  kOwn,        // each sequence has a line of its own, in micro-batches of `sequences` lines
  kShared,     // sequences share lines; each micro-batch has the same sequences as with kOwn
  kRegrouped,  // sequences share lines, in any micro-batch; a step uses only as many micro-batches as it needs
};

// What batches are for: training steps, or evaluations of held-out rows and of evaluation sets.
enum class BatchUse { kTraining, kEvaluation };

struct BatchSpec {
  int64_t micro_batches = 1;  // number of micro-batches of a step
  int64_t sequences = 1;      // sequences of a micro-batch over all devices
  int64_t max_length = 2048;  // largest number of tokens of an example (cutoff_len)
  int64_t multiple = 8;       // T (the positions of a line) is a multiple of this number; max_length is rounded up
  bool packing = false;  // several examples share a sequence, but do not attend to each other; needs RowGrouping::kNone
  Lines lines = Lines::kOwn;
  int64_t stages = 1;  // pipeline stages; the pipeline makes a step longer by stages - 1 micro-batches
  int64_t shards = 1;  // dp x fsdp: these devices share the lines of a micro-batch; `sequences` is a multiple of it
  int64_t ep = 1;      // devices along ep, which share the lines, too, if their number is a multiple of shards x ep
  RowGrouping grouping = RowGrouping::kNone;
  bool shuffle = true;  // true: a new order in each epoch; false: the order of the examples
  // true: the rows of a step have similar lengths, so they need less padding. Has no effect without `shuffle`, with
  // `packing`, or in very small data sets.
  bool like_length = true;
  uint64_t seed = 42;
  std::vector<std::string> skip_rows = {};  // "file:line" of rows to leave out; filler (batches.h) replaces them
  BatchUse use = BatchUse::kTraining;       // decides which key an error message names
  // With Lines::kOwn, T is the smallest of these values into which the step's longest sequence fits. Few values mean
  // few compilations. With other Lines, T is at most the smallest of these values into which the longest row of the
  // data fits (with `packing`, at most the largest of these values). If `lengths` is empty, the values are max_length
  // (rounded up to `multiple`), a half of it, a quarter, and so on down to 64.
  std::vector<int64_t> lengths = {};

  // The number of groups in a step (see Batches). A preference pair or a packed sequence is one group.
  int64_t groups_per_step() const { return micro_batches * sequences / sequences_per_group(grouping); }
  // The number of devices that share `lines` lines. The other devices compute the same lines again.
  int64_t devices_for(int64_t lines) const { return lines % (shards * ep) == 0 ? shards * ep : shards; }
  // Positions of the longest sequence.
  int64_t longest() const { return (max_length + multiple - 1) / multiple * multiple; }

  bool operator==(const BatchSpec&) const = default;
};

}  // namespace fettle
