// Defines the plan command: it compiles the recipe's step and prints its memory and time, without reading weights.
#pragma once

#include <ostream>
#include <string>

#include "run/request.h"

namespace fettle {

struct PlanOptions {
  bool json = false;
  bool shards = false;  // only show how the step's arrays are split over devices; compile nothing
  bool colour = false;  // use terminal colours in that picture
  std::string fit;      // "batch" or "seq": search for the largest value that fits; empty: use the recipe's
};

// Reads only config.json, no weights and no data. Returns 0, or 3 when the step does not fit (and then prints
// remedies). Writes results to `out`, and progress to stderr.
int run_plan(const Request& request, const PlanOptions& options, std::ostream& out);

}  // namespace fettle
