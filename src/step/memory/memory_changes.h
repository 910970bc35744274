// Defines MemoryChange: a change of the recipe or of the devices with which a step needs less memory, or may use more.
// `train` names these changes when a step does not fit; `plan` compiles the step with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "run/variant.h"
#include "step/memory/memory_table.h"

namespace fettle {

// One setting with which a step may fit.
struct MemoryTrial {
  std::string text;  // "cutoff_len: 1024"
  Variant variant;   // the recipe's changes, all of them
  // Set if the change only gives the step a larger share of each device's memory: this share. The step stays the same.
  std::optional<MemoryShare> share = {};
};

struct MemoryChange {
  // What the change reduces. kWeights: weights and optimizer state, or nothing (a larger share of the memory).
  enum class Part { kActivations, kWeights };
  Part part = Part::kActivations;
  std::string text;                      // without a size that is sure to fit: "a cutoff_len below 2048"
  std::vector<MemoryTrial> trials = {};  // the first one that fits is the mildest; empty if no setting is worth a trial
  bool more_devices = false;             // the machine has the trials of this change
  // false: by the table, the change moves less than is missing, so `train` does not name it. It may still be enough:
  // the table does not count the scratch memory of an update.
  bool named = true;
};

// Returns "mesh: {tp: 4} and " if `mesh: auto` chose the mesh in `variant`, else "". It goes before the rows per device
// of a run in a message: with `mesh: auto`, the recipe's value counts for each device, but the run's value for this
// mesh.
std::string with_chosen_mesh(const Variant& variant);

// Returns the changes that this run allows. Of a part, the change with the smallest drawbacks comes first. `table` is
// that of a step that does not fit. A change may be too small. `from` has the changes of the recipe with which the run
// was resolved; the trials keep them.
std::vector<MemoryChange> memory_changes(const Run& run, const MemoryTable& table, const Variant& from = {});

}  // namespace fettle
