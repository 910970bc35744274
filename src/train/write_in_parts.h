// Defines write_state, which writes the parts of a state that this process owns, and write_in_parts, with which several
// processes write one state together.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/saved/state.h"
#include "step/state/host_shards.h"
#include "step/state/train_state.h"
#include "train/processes.h"

namespace fettle {

// Adds the boxes of an array.
void write_array(StateWriter& state, const std::string& name, const HostShards& array);
// Adds the parts of these arrays that this process owns.
void write_state(StateWriter& state, const std::vector<StateArray>& arrays, const FetchArray& fetch);

// Every process calls write_in_parts with the same `name`, a text for messages. The first process calls `make_folder`,
// which returns the absolute path of the state's folder. Every process then calls `write_own`. When all processes have
// written their parts, the first process calls `complete` with a writer that has all parts; `complete` finishes the
// state and commits the folder. If one of these functions throws UserError, DoesNotFit or filesystem_error in one
// process, every process throws that error, and the remaining functions are not called.
void write_in_parts(const Processes& processes, const std::string& name,
                    const std::function<std::filesystem::path()>& make_folder,
                    const std::function<void(StateWriter&)>& write_own,
                    const std::function<void(StateWriter&)>& complete);

}  // namespace fettle
