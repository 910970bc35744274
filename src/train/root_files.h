// Defines earlier_result: the files of output_dir that a new result replaces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "run/run.h"

namespace fettle {

// A file that exists in output_dir when a run there has finished.
inline const char* const kResultMark = "all_results.json";

// Returns whether output_dir has the result of the run that ended with this checkpoint: the two trainer_state.json are
// equal.
bool has_result(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint);

// Returns the names of files in output_dir that may belong to an earlier run's result: weights, adapter, configs,
// tokenizer, figures. Fettle writes no other files there except checkpoints and trainer_log.jsonl, which belong to the
// current run, and remote code. Returns an empty list when there is no kResultMark. Leaves out model files when
// output_dir contains the base of the adapter that this run or the earlier one trained.
std::vector<std::string> earlier_result(const Run& run);

}  // namespace fettle
