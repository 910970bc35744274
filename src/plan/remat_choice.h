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

// What a step may take of each device's memory.
struct StepRoom {
  int64_t bytes = 0;  // 0: not known
  std::string rule;   // "three quarters of the host's free memory"
};
// Returns the limit of the machine's devices, less what other programs hold. A CPU's devices share the host's memory:
// they may take three quarters of what is free now, and leave at least 1 GB.
StepRoom step_room(const Machine& machine);
// The same for `free` bytes of host memory and `devices` devices of the CPU.
int64_t host_room(int64_t free, int64_t devices);

struct RematCandidate {
  std::string policy;  // name of a RematPolicy
  int64_t saved = 0;   // bytes that loops save on one device, from the graph
  int64_t peak = 0;    // the compiler's count; when it was not compiled, an estimate from those that were
  bool compiled = false;
};

struct RematChoice {
  std::vector<RematCandidate> candidates;  // the one that computes the least again first
  size_t taken = 0;
  StepRoom room;
  const std::string& policy() const { return candidates[taken].policy; }
};

// Compiles a step with a policy and returns the compiler's count of its memory.
using PeakOf = std::function<int64_t(const RematPolicy& policy)>;

// Returns the index of the first candidate that fits into `room`, else the last one. Compiles at most three: first the
// one that should fit by the graph's bytes, then others where the line through the compiled ones meets `room`. Fills in
// the peaks. `base` is a guess of the memory besides what is saved.
size_t least_that_fits(std::vector<RematCandidate>& candidates, int64_t room, int64_t base, const PeakOf& peak_of);

// Chooses for steps of this shape. `asked` is the run with any policy. Policies that save no less
// than one before them are left out. When the room is not known, takes the last one.
RematChoice choose_remat(const Run& asked, const BatchShape& shape, const StepRoom& room, const PeakOf& peak_of);

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
