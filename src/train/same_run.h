// Defines the checks that several processes train the same run. The checks run before the weights are loaded.
#pragma once

#include "checkpoint/repository.h"
#include "data/batches/batches.h"
#include "data/store/examples.h"
#include "run/request.h"
#include "run/run.h"
#include "train/processes.h"

namespace fettle {

// Throws UserError in every process if one process has another recipe, plugin or version of Fettle, or another value of
// a variable that decides which programs run. Keys that name places (model_name_or_path, dataset_dir, ...) may have
// other values, but each must be set in all processes or in none. The message names the host that differs. Call this
// function before the devices are opened. After the devices are opened, all processes must run the same programs in the
// same order. A process that runs another program would make the other processes wait.
void require_same_start(const Processes& processes, const Request& request);
// Throws UserError in every process if one process has another base model, or another adapter to train further.
void require_same_base(const Processes& processes, const Run& run, const ModelRepository& repository);
// Throws UserError in every process if one process has other tokens, or continues from a checkpoint of another step.
// `held_out` has the rows that the run evaluates; it is empty if the run evaluates none.
void require_same_data(const Processes& processes, const DataIdentity& data, const Examples& held_out,
                       int64_t resumed_step);

}  // namespace fettle
