// Defines find_remedies: changes that make a step fit. Each change is compiled to prove that it fits.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

struct Remedy {
  std::string change;  // "per_device_train_batch_size: 2 (gradient_accumulation_steps: 4 keeps the rows of a step)"
  MemoryTable memory;  // with the change
};

// Returns changes of the recipe or the machine with which `plan` fits (without them it does not). The changes with the
// smallest drawbacks come first: full rematerialisation, fewer rows at a time, shorter rows, offloading, more devices,
// lora instead of full. Each change is tried alone. Changes whose sizes already exceed the memory are not compiled.
// Returns an empty list when no single change is enough. Compiles up to about six times.
std::vector<Remedy> find_remedies(const StepPlan& plan, const Request& request, const Machine& machine);

}  // namespace fettle
