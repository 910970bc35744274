// Defines the choice of what layers save for the backward pass (`gradient_checkpointing: auto`). Among the policies
// that fit, it chooses the policy that recomputes the least. The compiler counts the memory of at most three steps; the
// memory of the other policies is estimated, so the choice may recompute more than necessary.
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
  int64_t peak = 0;    // the compiler's count; an estimate if the candidate was not compiled
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

// Returns the index of the first candidate that was compiled and fits into `room`; if none fits, returns the last
// index. Compiles at most three candidates; an earlier candidate that was not compiled may fit, too. The first one is
// chosen by a guess: `base` (the other memory) plus the candidate's saved bytes should fit. The next ones are chosen by
// the line (peak over saved bytes) through the compiled candidates. Sets the peaks of all candidates.
size_t least_that_fits(std::vector<RematCandidate>& candidates, int64_t room, int64_t base, const PeakOf& peak_of);

// Chooses the policy for steps of this shape and for the memory that the target offers. `asked` is the run with any
// policy. Leaves out a policy that saves at least as many bytes as an earlier policy. If the memory is not known,
// chooses the last policy.
RematChoice choose_remat(const Run& asked, const BatchShape& shape, const PeakOf& peak_of);

// Returns the run with the policy with which it trains on these devices. A policy in the recipe is kept. Otherwise
// takes `written`, the policy of the checkpoint from which the run continues (empty: none), if it fits or the memory
// limit is not known. Otherwise takes the policy that choose_remat chooses. Prints a policy that is not from the
// recipe; warns if `written` does not fit.
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
