// Defines StepPlan: what one training step needs and costs on a machine, read off the compiled program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/compiled/host_copies.h"
#include "plan/compiled/timeline.h"
#include "plan/compiled/traffic.h"
#include "plan/machine.h"
#include "step/memory_table.h"

namespace fettle {

struct StepPlan {
  Run run;
  Variant variant;  // of the request, that was compiled
  MeshAxes mesh;
  int64_t rows = 0;    // of a step: over all devices and micro-batches
  int64_t length = 0;  // positions of a row
  MemoryTable memory;
  int64_t flops = 0;  // of a step, over all devices: matrix products, recomputation included
  std::vector<Traffic> traffic;
  HostTraffic host_traffic;
  std::optional<Timeline> timeline;  // none when the machine's rates are not known
  double compile_seconds = 0;

  int64_t tokens() const { return rows * length; }
  // The hardware cannot go below: the longest of arithmetic, memory, links and the host's link, at data sheets' rates.
  // 0: not known.
  double seconds_bound() const;
};

// Compiles the very step that `train` would run. Needs no weights. Throws what resolve and the compiler throw.
StepPlan plan_step(const Request& request, const Variant& variant, const Machine& machine);

}  // namespace fettle
