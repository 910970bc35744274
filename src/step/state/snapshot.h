// Defines Snapshot: a copy on the host of what training changes, which the steps that follow cannot touch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/arrays/host_array.h"
#include "step/state/train_state.h"

namespace fettle {

// A global array as its distinct boxes, each dense.
struct HostShards {
  struct Shard {
    Box box;
    HostArray bytes;
  };
  Shape shape;  // global
  std::vector<Shard> shards;
};

// Waits for the array, then copies one of each distinct box.
HostShards download_shards(const DeviceBuffer& buffer);

// By name, as trained_arrays lists them.
using Snapshot = std::map<std::string, HostShards>;

// Complete when it returns: the arrays may be donated then. All devices copy at once.
Snapshot take_snapshot(const Run& run, const TrainState& state);
int64_t snapshot_bytes(const Run& run);  // of a snapshot's arrays

}  // namespace fettle
