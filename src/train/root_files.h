// Defines earlier_result: the files of output_dir whose place a new result takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "run/run.h"

namespace fettle {

// Is in the root of output_dir once a run came to its end there.
inline const char* const kResultMark = "all_results.json";

// Whether the result in the root is that of the run which ended with this checkpoint: both have the same
// trainer_state.json.
bool has_result(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint);

// Names, in the root of output_dir, of what an earlier run's result may consist of: weights, adapter, configs,
// tokenizer, figures. They are all that Fettle writes there, but for the checkpoints and trainer_log.jsonl, which a run
// keeps from its start, and remote code. Nothing when there is no kResultMark. Files of a model are left out when
// the base of the adapter that this run or the earlier one trained lies in the folder.
std::vector<std::string> earlier_result(const Run& run);

}  // namespace fettle
