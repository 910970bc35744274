// Defines write_root, which writes the result of a run into output_dir. Also defines earlier_result, which lists the
// files that write_root replaces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "eval/held_out.h"
#include "report/recorder.h"
#include "run/run.h"
#include "step/state/train_state.h"
#include "train/processes.h"

namespace fettle {

// This file exists in output_dir once a run there has finished.
inline const char* const kResultMark = "all_results.json";

// Returns whether output_dir has the result of the run that ended with this checkpoint: kResultMark exists, and the
// file trainer_state.json is the same in both folders, except for the best evaluation.
bool has_result(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint);

// If output_dir has the result of a run that continued this checkpoint (its log begins with the checkpoint's), returns
// the record in trainer_state.json of the result.
std::optional<TrainerState> later_result(const std::filesystem::path& output_dir,
                                         const std::filesystem::path& checkpoint);

// Returns the names of files in output_dir that may belong to an earlier run's result: weights, adapter, configs,
// tokenizer, metrics and plots. Leaves out the model's Python code (remote code), and also checkpoints,
// trainer_log.jsonl, fettle_run.json and report.html, which belong to the current run. If this run trains an adapter,
// output_dir may also be the folder of a model that is still needed: this run's base or reference model, or the base of
// the earlier run's adapter. In this case, the list has only the adapter, the metrics and the plots. Returns an empty
// list when there is no kResultMark, or when Fettle did not write trainer_state.json: other tools use the same names.
std::vector<std::string> earlier_result(const Run& run);

// Writes the result, the record of the run and the last evaluation into output_dir, and removes an earlier result. With
// several processes, all must call write_root, because each process writes its parts of the trained arrays. Throws
// UserError or DoesNotFit, in every process or in none.
void write_root(const Run& run, const ModelRepository& repository, const TrainState& state, Recorder& recorder,
                const std::optional<HeldOut>& held_out, const Processes& processes);

}  // namespace fettle
