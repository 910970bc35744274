// Defines Groups: which examples stay together in a batch.
//
// A group is one example, or several examples in one sequence: examples that are packed, or a prompt and all its
// replies (RowGrouping::kBranches). Two kinds of groups take two sequences: a preference pair (kPairs), and a prompt
// with its rated reply, plus the same prompt with another row's reply (kWithMismatched).
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batch_spec.h"
#include "data/store/examples.h"

namespace fettle {

// The groups of an epoch. All epochs have the same groups.
class Groups {
 public:
  // No example may be longer than the largest of spec.lengths. Throws UserError when the prompt and the branches of a
  // group are together longer.
  Groups(Examples examples, const BatchSpec& spec);

  const Examples& examples() const { return examples_; }
  int64_t count() const;
  // Returns whether a group may have several examples in one sequence.
  bool share_sequences() const { return !starts_.empty(); }
  std::vector<int64_t> examples_of(int64_t group) const;
  int64_t length(int64_t group) const;  // tokens of the group's sequence; of a pair: of the longer one
  int64_t longest() const;              // the largest length of a group
  int64_t most_documents() const { return most_documents_; }

 private:
  void pack(const BatchSpec& spec);
  void join_branches(const BatchSpec& spec);

  Examples examples_;
  RowGrouping grouping_;
  // If groups share sequences, group i has the examples members_[starts_[i] .. starts_[i + 1]).
  std::vector<int64_t> starts_, members_;
  int64_t most_documents_ = 0;  // with RowGrouping::kBranches: the largest number of documents of a step
};

}  // namespace fettle
