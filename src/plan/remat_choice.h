// Defines the choices of `gradient_checkpointing: auto`.
//
// A RematPolicy decides which values layers save for the backward pass. The goal is the policy that recomputes the
// least among those with which the step fits into memory. At most three policies are compiled, which gives their exact
// memory. The memory of the others is estimated, so a policy that recomputes less than the chosen one may also fit.
//
// If a step fits that recomputes the least, a GPU computes several of its small micro-batches at once.
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
  int64_t merged = 1;         // number of micro-batches that are computed at once
  int64_t micro_batches = 1;  // number of micro-batches of a step in the recipe
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

// Returns how many micro-batches of a step may be computed at once, the largest number first and 1 last. A step keeps
// its rows. Returns only 1
// - on devices other than GPUs; the speed of a CPU hardly depends on the size of a micro-batch;
// - if rows must stay in their micro-batch or in a line of their own;
// - in a pipeline;
// - if the memory of a step is not known;
// - if a micro-batch of `shape` already keeps a GPU busy. No larger micro-batch is better than one with 8,192 positions
//   for each device (docs/decisions/2026-11-22-rematerialisation.md).
std::vector<int64_t> merge_factors(const Run& run, const BatchShape& shape);

// Returns the largest shape of steps with these batches.
using ShapeOf = std::function<BatchShape(const BatchSpec& spec)>;
// Compiles the step of `run`. Returns the bytes of memory that it needs, as the compiler counts them.
using PeakOfRun = std::function<int64_t(const Run& run)>;

// Chooses the policy and how many micro-batches are computed at once: the largest number with which the step takes at
// most nine tenths of the room, without more recomputation than the first candidate needs. Near the limit, XLA would
// compute values again on its own (Vendor::xla_flag). If there is no such number, chooses one micro-batch and the
// policy of choose_remat.
RematChoice choose_step(const Run& asked, const ShapeOf& shape_of, const PeakOfRun& peak_of);

// What a checkpoint says about the run that wrote it.
struct WrittenStep {
  std::string policy;         // name of a RematPolicy; empty: not known
  int64_t micro_batches = 0;  // number of micro-batches of a step in its recipe; 0: not known
  int64_t merged = 1;         // how many of them were computed at once
};

// Returns how many micro-batches a run computes at once when it continues from `written`: as many as before if the
// recipe has as many micro-batches as before and merge_factors() allows it; else 1.
int64_t merged_as_before(const Run& asked, const BatchShape& shape, const WrittenStep& written);

// Returns the run with the policy and the micro-batches for training on these devices. The first of these rules that
// applies decides:
// - the policy in the recipe, if it is not auto;
// - `written`, if it is known, and if the step fits with it or the memory limit is not known. If the step does not fit
//   with it, warns and goes on to the next rule;
// - choose_step.
// Prints the choice if it is not from the recipe.
Run settle_step(const Run& asked, const ShapeOf& shape_of, Devices& devices, const WrittenStep& written);

// What choose_step chooses for one variant of a request, and the plan of this step.
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
