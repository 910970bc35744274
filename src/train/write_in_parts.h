// Defines write_in_parts, with which several processes write one state: each writes the parts that it owns.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/saved/state.h"
#include "train/processes.h"

namespace fettle {

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
