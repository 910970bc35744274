// Defines find_remedies, which finds changes with which a step fits. It compiles the step with each change to prove
// that the change is enough.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

struct Remedy {
  std::string change;  // "cutoff_len: 1024"
  MemoryTable memory;  // with the change
};

// `plan` is the plan of a step that does not fit. Returns at most three changes of the recipe or the machine with which
// the step fits; an empty list when no single change is enough. The changes with the smallest drawbacks come first:
// full rematerialisation, sharding: {act_embed: tp}, fewer rows at a time, shorter rows, weights or optimizer state in
// fewer bits, offloading (can_offload), more devices, LoRA instead of full tuning. Tries each change alone, except that
// offload_param is tried together with offload_optimizer if the devices hold the optimizer state. Compiles at most
// twelve steps. Does not compile a change if weights, state and batch alone exceed the memory.
std::vector<Remedy> find_remedies(const StepPlan& plan, const Request& request, const Machine& machine);

}  // namespace fettle
