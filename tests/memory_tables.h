// Defines job_for and table_of: a run of the small Llama model, and the memory table of its step.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "paths.h"
#include "resolve_run.h"
#include "step/memory/memory_table.h"

namespace fettle {

inline Run job_for(const Recipe& recipe, const RunTarget& target = {.platform = "cuda"}) {
  const std::string llama = (source_folder() / "tests/reference/models/llama/config.json").string();
  return make_run(recipe, nlohmann::json::parse(std::ifstream(llama)), llama, target);
}

// Returns the memory table of a step whose rows have 40 positions each.
inline MemoryTable table_of(const Run& run, const MemoryStats& stats, const MemoryShare& share,
                            const std::string& device) {
  return memory_table(run, padded_shape(run.batch, 40), stats, share, device);
}

}  // namespace fettle
