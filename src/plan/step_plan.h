// Defines StepPlan: the memory and time of one training step on a machine. Both are read from the compiled program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/compiled/host_copies.h"
#include "plan/compiled/timeline.h"
#include "plan/compiled/traffic.h"
#include "plan/machine.h"
#include "step/memory/memory_table.h"

namespace fettle {

struct StepPlan {
  Run run;
  Variant variant;  // the changes to the request's recipe with which the step was compiled
  MeshAxes mesh;
  int64_t rows = 0;    // per step, over all devices and micro-batches
  int64_t length = 0;  // positions per row
  MemoryTable memory;
  double flops = 0;                // per step over all devices: matrix products, including recomputation
  std::vector<KernelUse> kernels;  // the kernels that the step calls
  // If the step calls no kernel: the kernels that it would call if the recipe named them.
  std::vector<std::string> kernels_on_request;
  std::vector<std::string> kernels_off;  // kernels that this device has by default, if the recipe has `off`
  std::vector<Traffic> traffic;
  HostTraffic host_traffic;
  std::optional<Timeline> timeline;  // nullopt when the machine's rates are not known
  double compile_seconds = 0;

  // Returns the share of the time in which a stage of the pipeline has no micro-batch, if all stages take equally long;
  // 0 without a pipeline.
  double bubble_share() const;
  int64_t tokens() const { return rows * length; }
  // Returns the lower bound of the step's seconds: the longest of the times for arithmetic, memory, links and host
  // link, at the rates of the data sheet. 0 means not known.
  double seconds_bound() const;
  // Returns what determines seconds_bound(): "arithmetic", "memory", "links", "the network between hosts" or "the
  // host's link". Requires `timeline`.
  std::string limited_by() const;
};

// Compiles the same step that `train` would run. Reads no weights. Throws the errors of resolve() and of the compiler.
StepPlan plan_step(const Request& request, const Variant& variant, const Machine& machine);
// Compiles the evaluation of the planned run for rows of cutoff_len tokens, and returns its peak (evaluation_peak).
// Returns nullopt if the run does not evaluate.
std::optional<int64_t> plan_evaluation(const StepPlan& plan, const Machine& machine);

}  // namespace fettle
