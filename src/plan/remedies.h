// Defines find_remedies, which finds changes with which a step fits. It compiles the step with each change to prove
// that the change is enough.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

struct Remedy {
  std::string change;  // "cutoff_len: 1024"
  MemoryTable memory;  // with the change
};

// `plan` is the plan of a step that does not fit. Returns the first three of the step's changes (memory_changes) with
// which it fits; an empty list when no single change is enough. Compiles the step with each, except if only the share
// of the memory changes. Does not compile a change if weights, state and batch alone exceed the memory.
std::vector<Remedy> find_remedies(const StepPlan& plan, const Request& request, const Machine& machine);

}  // namespace fettle
