// Defines the plan: the recipe's step compiled, its memory and arithmetic told, before any weight is read.
#pragma once

#include <ostream>

#include "config/recipe.h"

namespace fettle {

struct PlanOptions {
  bool json = false;
  bool shards = false;  // only show how the step's arrays lie over the devices: compiles nothing
  bool colour = false;  // of that picture
};

// Needs only config.json, no weights and no data. Returns 0, or 3 when the step does not fit.
int run_plan(const Recipe& recipe, const PlanOptions& options, std::ostream& out);

}  // namespace fettle
