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

// The model's config.json, and its name for messages.
struct ConfigFile {
  const nlohmann::json& json;
  std::string file;
};

struct StepPlan {
  Recipe recipe;  // with the mesh and the batch that were compiled
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

// Compiles the very step that `train` would run. Needs no weights. Throws what make_job and the compiler throw.
StepPlan plan_step(const Recipe& recipe, const ConfigFile& config, const Machine& machine);

}  // namespace fettle
