// Defines the choice of a RematPolicy for `gradient_checkpointing: auto`. A policy decides which values layers save for
// the backward pass. The goal is the policy that recomputes the least among those with which the step fits into memory.
// At most three policies are compiled, which gives their exact memory. The memory of the others is estimated, so a
// policy that recomputes less than the chosen one may also fit.
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
  int64_t saved = 0;   // bytes that loops save on one device, counted in the graph
  int64_t peak = 0;    // memory of the step: the compiler's count, or an estimate if not compiled
  bool compiled = false;
};

struct RematChoice {
  std::vector<RematCandidate> candidates;  // the candidate that recomputes the least comes first
  size_t taken = 0;
  StepRoom room;
  const std::string& policy() const { return candidates[taken].policy; }
};

// Compiles the step with the policy. Returns the bytes of memory that the step needs, as the compiler counts them.
using PeakOf = std::function<int64_t(const RematPolicy& policy)>;

// Compiles up to three candidates. Returns the index of the compiled candidate that fits into `room` and recomputes the
// least; if none fits, returns the compiled candidate with the lowest peak. To decide which candidates to compile,
// first estimates each peak as `base` (all other memory) plus the saved bytes. After each compilation, draws the line
// through the last two compiled candidates (x: saved bytes, y: peak) and takes new estimates of the other peaks from
// this line. Sets the peaks of all candidates.
size_t least_that_fits(std::vector<RematCandidate>& candidates, int64_t room, int64_t base, const PeakOf& peak_of);

// Chooses the policy for steps of this shape and for the memory of the target. The policy of `asked` does not matter.
// Leaves out each policy that saves at least as many bytes as an earlier policy. Also leaves out `none` if `attention`
// saves less. If the memory is not known, chooses the last policy.
RematChoice choose_remat(const Run& asked, const BatchShape& shape, const PeakOf& peak_of);

// Returns the run with the policy for training on these devices. The first of these rules that applies decides:
// - the policy in the recipe, if it is not auto;
// - `written`, the policy of the checkpoint from which the run continues (empty: none), if the step fits with it or the
//   memory limit is not known. If the step does not fit with it, warns and goes on to the next rule;
// - the policy that choose_remat chooses.
// Prints the policy if it is not from the recipe.
Run settle_remat(const Run& asked, const BatchShape& shape, Devices& devices, const std::string& written);

// The policy that choose_remat chooses for one variant of a request, and the plan of the step with this policy.
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
