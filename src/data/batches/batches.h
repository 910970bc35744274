// Defines Batches, which puts examples into a seeded order and cuts this order into global batches of dense arrays.
//
// Examples form groups (groups.h). Each step has some groups, in an order that depends only on the seed, the epoch and
// the examples, never on the mesh or on threads (step_groups.h). The number of a step alone decides which rows the step
// has. So a resumed run continues by asking for the next step. The sequences of the groups are laid into lines
// (layout.h), and written into the arrays of the step (fill_batch.h).
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/batches/batch.h"
#include "data/batches/batch_spec.h"
#include "data/batches/fill_batch.h"
#include "data/batches/groups.h"
#include "data/batches/layout.h"
#include "data/batches/step_groups.h"
#include "data/store/examples.h"

namespace fettle {

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
  int64_t groups() const { return groups_.count(); }  // groups in an epoch
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
  const Examples& all() const { return groups_.examples(); }
  void number_rows();
  void skip_rows();
  bool skips(int64_t example) const { return skipped_.contains(example); }
  void choose_shapes(int64_t longest);
  int64_t other_row(const std::vector<int64_t>& groups, size_t g) const;
  Document mismatched(int64_t example, int64_t other) const;
  std::vector<Sequence> sequences_of(const std::vector<int64_t>& groups) const;
  LaidStep lay(const std::vector<Sequence>& sequences) const;

  BatchSpec spec_;
  Groups groups_;
  int32_t pad_id_;
  std::vector<BatchShape> shapes_;
  std::set<int64_t> skipped_;  // numbers of the skipped examples
  std::vector<int64_t> rows_;  // RowGrouping::kWithMismatched: Examples::row_numbers
};

// Returns the text that `train`, `eval` and `data` print about batches: "8 steps an epoch, 4 rows a step, laid into
// 1 x 16, 2 x 32 positions". `per` is " an epoch" or "".
std::string format_batches(const Batches& batches, std::string_view per);

}  // namespace fettle
