// Defines StateSnapshot: a host copy of the arrays that training changes. Later steps do not change the copy.
#pragma once

#include <map>
#include <string>

#include "step/state/host_shards.h"
#include "step/state/train_state.h"

namespace fettle {

// Waits for the array, then copies each box of this process once.
HostShards download_shards(const DeviceBuffer& buffer);
// Returns a function that copies arrays of `state` to the host. `state` must outlive the function.
FetchArray fetch_from(const TrainState& state);

// The keys are the names in trained_arrays().
using StateSnapshot = std::map<std::string, HostShards>;

// Copies the arrays of trained_arrays() from all devices in parallel, except the arrays on a disk. When the function
// returns, the copy is complete, and the device arrays may be donated to a program.
StateSnapshot take_snapshot(const Run& run, const TrainState& state);
int64_t snapshot_bytes(const Run& run);  // bytes of all processes' trained arrays, also those on a disk
int64_t snapshot_bytes(const Run& run, const TrainState& state);  // bytes of this process's snapshot

}  // namespace fettle
