// Defines what would make a step fit that does not, each way compiled and seen to fit.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

struct Remedy {
  std::string change;  // "per_device_train_batch_size: 2 (gradient_accumulation_steps: 4 keeps the rows of a step)"
  MemoryTable memory;  // with it
};

// Changes of the recipe or the machine, the mildest first, that let `plan` (which does not fit) fit: full
// rematerialisation, fewer rows at a time, shorter rows, more devices, lora instead of full. One at a time; those that
// sizes alone rule out are not compiled. Empty when none of them suffices alone. Compiles up to about six times.
std::vector<Remedy> find_remedies(const StepPlan& plan, const Request& request, const Machine& machine);

}  // namespace fettle
