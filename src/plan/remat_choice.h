// Defines the choice of what layers save for the backward pass (`gradient_checkpointing: auto`): the policy that
// computes the least again among those that fit, by the compiler's count of the step's memory.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/batches/layout.h"
#include "graph/program.h"
#include "plan/step_plan.h"
#include "run/run.h"

namespace fettle {

struct RematCandidate {
  std::string policy;  // name of a RematPolicy
  int64_t saved = 0;   // bytes that loops save on one device, from the graph
  int64_t peak = 0;    // the compiler's count; when it was not compiled, an estimate from those that were
  bool compiled = false;
};

struct RematChoice {
  std::vector<RematCandidate> candidates;  // first the candidate that recomputes the least
  size_t taken = 0;
  StepRoom room;
  const std::string& policy() const { return candidates[taken].policy; }
};

// Compiles a step with a policy and returns the compiler's count of its memory.
using PeakOf = std::function<int64_t(const RematPolicy& policy)>;

// Returns the index of the first candidate that fits into `room`, else the last one. Compiles at most three.
// The first is the one that should fit by `base`, a guess of the other memory, plus its saved bytes. The others are
// chosen by a line (peak against saved bytes) through those that were compiled. Fills in the peaks.
size_t least_that_fits(std::vector<RematCandidate>& candidates, int64_t room, int64_t base, const PeakOf& peak_of);

// Chooses for steps of this shape and the target's room. `asked` is the run with any policy. Leaves out a policy that
// saves as many bytes as an earlier one, or more. When the room is not known, takes the last policy.
RematChoice choose_remat(const Run& asked, const BatchShape& shape, const PeakOf& peak_of);

// Returns the run as it trains on these devices: with the policy of the recipe, else with that of the checkpoint that
// it continues from (`written`; empty: none), else with the one that choose_remat takes. Prints the choice.
Run settle_remat(const Run& asked, const BatchShape& shape, Devices& devices, const std::string& written);

// Makes the plan of a request's variant with the policy that choose_remat takes.
struct PlannedRemat {
  RematChoice choice;
  StepPlan plan;
};
PlannedRemat plan_remat(const Request& request, Variant variant, const Machine& machine);

// Returns the bytes that the stacked results of the program's loops take, over all devices.
int64_t stacked_bytes(const Block& block);

// Formats a table for people: policy, peak, verdict.
std::string format_remat(const RematChoice& choice);
nlohmann::json to_json(const RematChoice& choice);

}  // namespace fettle
