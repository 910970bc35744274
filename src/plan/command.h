// Defines run_plan, the plan command: it compiles the recipe's step, and prints the step's memory and time.
#pragma once

#include <ostream>
#include <string>

#include "run/request.h"

namespace fettle {

struct PlanOptions {
  bool json = false;
  bool shards = false;  // only show how the step's arrays are split over devices; compile nothing
  bool colour = false;  // with `shards`: use terminal colours
  std::string fit;      // "batch" or "seq": search for the largest value that fits; empty: use the recipe's
};

// Reads the model's config.json, but no weights. Reads rows of data only if neither the recipe nor the model states the
// number of a classifier's labels; it then counts the labels. Returns 0. If the step does not fit, prints remedies and
// returns 3. Writes results to `out`, and progress to stderr.
int run_plan(const Request& request, const PlanOptions& options, std::ostream& out);

}  // namespace fettle
