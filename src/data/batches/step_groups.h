// Defines StepGroups, which says which groups a step has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/batches/batch_spec.h"
#include "data/batches/groups.h"

namespace fettle {

int64_t steps_per_epoch(const Groups& groups, const BatchSpec& spec);

// The groups of steps, in a seeded order. The order depends only on the groups, the seed and the number of the step.
// Asking for steps in order is faster, because steps that are sorted together are sorted once.
class StepGroups {
 public:
  // Keeps both by reference.
  StepGroups(const Groups& groups, const BatchSpec& spec) : groups_(groups), spec_(spec) {}
  // Returns the groups of `step`, in order. Steps are counted over epochs, from 0. The last step of an epoch may have
  // fewer than spec.groups_per_step().
  std::vector<int64_t> of(int64_t step);

 private:
  // A range of `steps` steps that begins at step `first`, and the groups of these steps, sorted by length.
  struct Window {
    int64_t first = 0, steps = 0;
    std::vector<int64_t> groups;
    uint64_t stream = 0;  // the random stream for the order of these steps
  };
  std::optional<Window> window_of(int64_t step) const;
  int64_t group_at(int64_t epoch, int64_t i) const;

  const Groups& groups_;
  const BatchSpec& spec_;
  std::optional<Window> window_;  // of the last step, if its groups were chosen by length
};

}  // namespace fettle
