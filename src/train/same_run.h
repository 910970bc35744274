// Defines the checks that several processes train the same run. The checks are made before any weight is read.
#pragma once

#include "checkpoint/repository.h"
#include "data/batches/batches.h"
#include "programs/devices.h"
#include "run/run.h"
#include "train/processes.h"

namespace fettle {

// Throws UserError in every process if one process has another recipe, base, plugin or kind of devices; the message
// names the host that differs.
void require_same_run(const Processes& processes, const Run& run, const ModelRepository& repository,
                      const Devices& devices);
// Throws UserError in every process if one process has other tokens, or continues from a checkpoint of another step.
void require_same_data(const Processes& processes, const DataIdentity& data, int64_t resumed_step);

}  // namespace fettle
