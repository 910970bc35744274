// Defines Batches, which puts examples into a seeded order and cuts this order into global batches of dense arrays.
//
// The order depends only on the seed, the epoch and the examples, never on the mesh or on threads. The number of a step
// alone decides which rows the step has. So a resumed run continues by asking for the next step.
//
// A group is a set of examples that stay together in a batch. There are four kinds of groups: one example; the examples
// that are packed into one sequence; a preference pair; and a prompt with its rated reply, plus the same prompt with
// another row's reply. Groups of the last two kinds take two sequences, other groups take one. The sequences of a step
// are laid into lines (layout.h).
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arrays/host_array.h"
#include "data/batches/batch_spec.h"
#include "data/batches/layout.h"
#include "data/store/examples.h"

namespace fettle {

// The rows of one optimizer step: A micro-batches of B lines of T positions. The arrays are int32 [A, B, T] unless
// noted. The sequences of the step (with packing, its documents) are numbered from 1 to S. These numbers do not depend
// on the layout. If the epoch has too few examples left, the step's last sequences are filler, which has no tokens.
struct Batch {
  BatchShape shape;     // shape.sequences is S; with packing, S is at least the number of documents
  int64_t used = 1;     // number of micro-batches to compute; the later ones (Lines::kRegrouped) are padding
  HostArray tokens;     // padded with pad_id
  HostArray targets;    // targets[t] = label of token t+1 of the same document, or kIgnore if not trained
  HostArray positions;  // 0, 1, ... within each document; a branch goes on after its prompt; 0 in padding
  HostArray segments;   // document number in the line from 1; 0 in padding
  HostArray prompts;    // shape.branched only: the segment of the prompt that this document continues, or its own
  HostArray sequence_numbers;  // number of the sequence (with packing, of the document), from 1; 0 in padding
  HostArray preferences;       // [S]: Preference of each document as a number; 0: none
  HostArray token_types;       // labelled rows only: 1 for tokens of the second text
  HostArray classes;           // labelled rows only: f32 [S, classes per row]; 0 in filler and rows without a label
  HostArray weights;           // shape.weighted only: f32, the factor on the loss of each target; 0 without a target
  int64_t trained_tokens = 0;  // number of targets that are not kIgnore; for labelled rows: number of rows with a label
  int64_t real_tokens = 0;     // tokens that are not padding
  std::vector<std::string> sources;  // [S] "file:line" of each document; "" for filler
};

// Batch::sources has this text after the "file:line" of a prompt whose reply comes from another row.
inline constexpr std::string_view kOtherReply = " with another row's reply";

// Two runs with equal identities and batch specifications have the same rows at the same step.
struct DataIdentity {
  int64_t groups = 0;  // groups in an epoch
  std::string digest;  // Examples::digest of all examples
};

// Returns one flag for each line of a batch of this shape: whether this process needs the line.
using OwnLines = std::function<std::vector<bool>(const BatchShape& shape)>;

// Safe to use from several threads at once.
class Batches {
 public:
  // With RowGrouping::kPairs or kWithMismatched, spec.sequences must be even. `pad_id` is the token id in padding. Rows
  // of spec.skip_rows keep their places, but at() replaces them by filler. Throws UserError
  // - when no example has a trained token (labelled rows need none), or when spec.skip_rows leaves nothing to train;
  // - when an example is longer than the largest length, or when spec.skip_rows names a row that no example comes from;
  // - for packing together with a grouping or with labelled rows;
  // - when the prompt and the branches of a group are together longer than the largest length;
  // - when RowGrouping::kWithMismatched needs another row, but the data set or a step has only one.
  Batches(Examples examples, BatchSpec spec, int32_t pad_id = 0);

  const BatchSpec& spec() const { return spec_; }
  int64_t steps_per_epoch() const;  // the last step of an epoch may have filler sequences
  int64_t examples() const;
  int64_t groups() const;  // groups in an epoch
  // Returns the shapes that the batches of at() may have, by length. With packing, a batch may have a larger S. With
  // RowGrouping::kBranches, all batches have the same S.
  const std::vector<BatchShape>& shapes() const { return shapes_; }
  const BatchShape& fullest() const;  // the shape with the largest micro-batches; in a pipeline, the largest step
  DataIdentity identity() const;
  // Returns the batch of optimizer step `step` (0-based, counted over epochs). The same step always gives the same
  // bytes. If `own` is given, the lines that this process does not need are filler; the token counts still include all
  // lines.
  Batch at(int64_t step, const OwnLines& own = {}) const;
  // Returns the share of an epoch's positions that have real tokens, not padding. Does not count the positions of
  // unused micro-batches. With Lines::kOwn, also does not count lines that only fill up the last step of the epoch.
  double use() const;

 private:
  void pack();
  void group_branches();
  bool packs() const { return !packed_starts_.empty(); }
  void skip_rows();
  bool skips(int64_t example) const { return skipped_.contains(example); }
  // A range of `steps` steps that begins at step `first`, and the groups of these steps, sorted by length.
  struct Window {
    int64_t first = 0, steps = 0;
    std::vector<int64_t> groups;
    uint64_t stream = 0;  // the random stream for the order of these steps
  };
  std::optional<Window> window_of(int64_t step) const;
  // Returns the groups of `step`, in order. The last step of an epoch may have fewer than spec_.groups_per_step().
  std::vector<int64_t> groups_of_step(int64_t step, const std::optional<Window>& window) const;
  int64_t group_at(int64_t epoch, int64_t i) const;
  std::vector<int64_t> examples_of(int64_t group) const;
  int64_t group_length(int64_t group) const;
  // An example, or a prompt with another example's reply.
  struct Document {
    int64_t example;
    std::span<const Token> tokens, reply = {};
    std::span<const float> weights = {};  // weights of `tokens`; empty: all are 1
    int64_t length() const { return static_cast<int64_t>(tokens.size() + reply.size()); }
    Token operator[](size_t i) const { return i < tokens.size() ? tokens[i] : reply[i - tokens.size()]; }
  };
  using Sequence = std::vector<Document>;
  std::vector<Sequence> laid_out(const std::vector<int64_t>& groups) const;
  Document mismatched(int64_t example, int64_t other) const;
  void choose_shapes();
  std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences) const;  // skipped documents count as 0 tokens
  struct Laid {
    BatchShape shape;
    LineLayout layout;
  };
  Laid lay(const std::vector<Sequence>& sequences) const;

  Examples examples_;
  BatchSpec spec_;
  int32_t pad_id_;
  std::vector<BatchShape> shapes_;
  std::set<int64_t> skipped_;  // numbers of the skipped examples
  std::vector<int64_t> rows_;  // RowGrouping::kWithMismatched: Examples::row_numbers
  // With packing and with RowGrouping::kBranches, group i has the examples
  // packed_[packed_starts_[i] .. packed_starts_[i + 1]).
  std::vector<int64_t> packed_starts_, packed_;
  int64_t most_documents_ = 0;  // with RowGrouping::kBranches: the largest number of documents of a step
};

// Returns the text that `train`, `eval` and `data` print about batches: "8 steps an epoch, 4 rows a step, laid into
// 1 x 16, 2 x 32 positions". `per` is " an epoch" or "".
std::string format_batches(const Batches& batches, std::string_view per);

// Prefetches batches in the order of training: while the device works on one batch, a thread makes the next batch.
class BatchPrefetcher {
 public:
  // Keeps `batches` by reference.
  explicit BatchPrefetcher(const Batches& batches, OwnLines own = {}) : batches_(batches), own_(std::move(own)) {}
  // Like Batches::at; fast when the steps are requested in order.
  Batch at(int64_t step);

 private:
  const Batches& batches_;
  OwnLines own_;
  int64_t coming_step_ = -1;
  std::future<Batch> coming_;
};

}  // namespace fettle
