// Defines Snapshot: a host copy of the arrays that training changes. Later steps do not change it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/arrays/host_array.h"
#include "step/state/train_state.h"

namespace fettle {

// A global array as its distinct boxes (rectangular parts), each of them dense. With several processes, this has only
// the boxes that this process owns: a box belongs to the process of the first device that stores the box.
struct HostShards {
  struct Shard {
    Box box;
    HostArray bytes;
  };
  Shape shape;  // the global shape
  std::vector<Shard> shards;
};

// Waits for the array, then copies each box of this process once.
HostShards download_shards(const DeviceBuffer& buffer);

// The keys are the names in trained_arrays().
using Snapshot = std::map<std::string, HostShards>;

// Copies from all devices in parallel, and leaves out the arrays on a disk. When it returns, the copy is complete and
// the device arrays may be donated.
Snapshot take_snapshot(const Run& run, const TrainState& state);
int64_t snapshot_bytes(const Run& run);  // bytes of all processes' trained arrays, also those on a disk
int64_t snapshot_bytes(const Run& run, const TrainState& state);  // bytes of this process's snapshot

}  // namespace fettle
