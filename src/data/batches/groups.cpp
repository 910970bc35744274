#include "data/batches/groups.h"

#include <algorithm>

#include "base/error.h"
#include "data/batches/order.h"
#include "data/batches/packing.h"

namespace fettle {
namespace {

// The number of the random stream for the order in which examples are packed. It is larger than any epoch
// (step_groups.cpp).
constexpr uint64_t kPackStream = uint64_t{1} << 60;

}  // namespace

Groups::Groups(Examples examples, const BatchSpec& spec) : examples_(std::move(examples)), grouping_(spec.grouping) {
  if (spec.packing) pack(spec);
  if (grouping_ == RowGrouping::kBranches) join_branches(spec);
}

// Packs the examples once, so every epoch has the same groups. With spec.shuffle, the order of the groups differs
// between epochs.
void Groups::pack(const BatchSpec& spec) {
  const auto count = static_cast<int64_t>(examples_.size());
  std::vector<int64_t> order(examples_.size()), lengths(examples_.size());
  for (int64_t i = 0; i < count; ++i) {
    order[i] = spec.shuffle ? permuted_index(i, count, spec.seed, kPackStream) : i;
    lengths[i] = examples_.length(order[i]);
  }
  std::vector<std::vector<int64_t>> groups = pack_lengths(lengths, capacity_of(spec));
  for (auto& group : groups) {
    for (int64_t& index : group) index = order[index];
    std::sort(group.begin(), group.end());
  }
  std::sort(groups.begin(), groups.end());
  starts_.push_back(0);
  for (const auto& group : groups) {
    members_.insert(members_.end(), group.begin(), group.end());
    starts_.push_back(static_cast<int64_t>(members_.size()));
  }
}

void Groups::join_branches(const BatchSpec& spec) {
  internal_check(!spec.shuffle && spec.lines == Lines::kRegrouped && examples_.trained_tokens(0) == 0,
                 "Groups: branches need a prompt, shared lines and a fixed order");
  const auto examples = static_cast<int64_t>(examples_.size());
  for (int64_t i = 0; i < examples; ++i) {
    if (examples_.trained_tokens(i) == 0) starts_.push_back(i);
    members_.push_back(i);
  }
  starts_.push_back(examples);
  const int64_t each = spec.groups_per_step();
  for (int64_t group = 0; group < count(); ++group) {
    if (length(group) > spec.lengths.back())
      throw UserError("{}: a question and its answers have {} tokens, more than the longest batch length {}",
                      examples_.source(starts_[group]), length(group), spec.lengths.back());
    if (group % each == 0)
      most_documents_ = std::max(most_documents_, starts_[std::min(count(), group + each)] - starts_[group]);
  }
}

int64_t Groups::count() const {
  if (share_sequences()) return static_cast<int64_t>(starts_.size()) - 1;
  const auto examples = static_cast<int64_t>(examples_.size());
  return grouping_ == RowGrouping::kPairs ? examples / 2 : examples;
}

std::vector<int64_t> Groups::examples_of(int64_t group) const {
  if (grouping_ == RowGrouping::kPairs) return {2 * group, 2 * group + 1};
  if (!share_sequences()) return {group};
  return {members_.begin() + starts_[group], members_.begin() + starts_[group + 1]};
}

int64_t Groups::length(int64_t group) const {
  if (grouping_ == RowGrouping::kPairs) return std::max(examples_.length(2 * group), examples_.length(2 * group + 1));
  if (!share_sequences()) return examples_.length(group);
  int64_t length = 0;
  for (int64_t i = starts_[group]; i < starts_[group + 1]; ++i) length += examples_.length(members_[i]);
  return length;
}

int64_t Groups::longest() const {
  int64_t longest = 0;
  for (int64_t group = 0; group < count(); ++group) longest = std::max(longest, length(group));
  return longest;
}

}  // namespace fettle
