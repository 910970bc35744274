// Defines the plan command: the recipe's step compiled, its memory and time told, before any weight is read.
#pragma once

#include <ostream>
#include <string>

#include "run/request.h"

namespace fettle {

struct PlanOptions {
  bool json = false;
  bool shards = false;  // only show how the step's arrays lie over the devices: compiles nothing
  bool colour = false;  // of that picture
  std::string fit;      // "batch", "seq": the largest that fits; empty: the recipe's own
};

// Needs only config.json, no weights and no data. Returns 0, or 3 when the step does not fit (with what would make it
// fit). Results go to `out`, what is tried on the way to stderr.
int run_plan(const Request& request, const PlanOptions& options, std::ostream& out);

}  // namespace fettle
