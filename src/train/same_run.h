// Defines checks, before any weight is read, that several processes train the same run.
#pragma once

#include "checkpoint/repository.h"
#include "data/batches/batches.h"
#include "programs/devices.h"
#include "run/run.h"
#include "train/processes.h"

namespace fettle {

// Throws UserError in every process unless all have the same recipe, base, plugin and kind of devices; the message
// names the host that differs.
void require_same_run(const Processes& processes, const Run& run, const ModelRepository& repository,
                      const Devices& devices);
// Does the same for the data's tokens, and for the step of the checkpoint from which the run continues.
void require_same_data(const Processes& processes, const DataIdentity& data, int64_t resumed_step);

}  // namespace fettle
