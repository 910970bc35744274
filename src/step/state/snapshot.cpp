#include "step/state/snapshot.h"

#include <algorithm>

#include "base/parallel.h"

namespace fettle {
namespace {

// Returns the devices to copy from, as positions in the buffer's layout. For each distinct box, this is the first
// device that stores the box, if that device belongs to this process.
std::vector<int> first_positions(const DeviceBuffer& buffer) {
  std::vector<int> positions;
  const std::vector<int> part_of = buffer.layout().part_of();
  int next = 0;
  for (int i = 0; i < buffer.layout().count(); ++i) {
    if (part_of[static_cast<size_t>(i)] != next) continue;
    if (buffer.is_local(i)) positions.push_back(i);
    ++next;
  }
  return positions;
}

}  // namespace

HostShards download_shards(const DeviceBuffer& buffer) {
  HostShards out{buffer.shape(), {}};
  for (int position : first_positions(buffer))
    out.shards.push_back({buffer.layout().boxes[static_cast<size_t>(position)], buffer.download_shard(position)});
  return out;
}

FetchArray fetch_from(const TrainState& state) {
  return [&state](const std::string& name, const std::function<void(const HostShards&)>& use) {
    if (state.disk && state.disk->contains(name)) return state.disk->read(name, use);
    use(download_shards(state.buffers.at(name)));
  };
}

StateSnapshot take_snapshot(const Run& run, const TrainState& state) {
  struct Copy {
    const DeviceBuffer* from;
    int position;
    HostArray* to;
  };
  StateSnapshot snapshot;
  std::vector<Copy> copies;
  size_t devices = 1;
  for (const StateArray& trained : trained_arrays(run)) {
    if (trained.on_disk) continue;
    const DeviceBuffer& buffer = state.buffers.at(trained.name);
    HostShards& array = snapshot[trained.name];
    array.shape = buffer.shape();
    const std::vector<int> positions = first_positions(buffer);
    devices = std::max(devices, positions.size());
    for (int position : positions) array.shards.push_back({buffer.layout().boxes[static_cast<size_t>(position)], {}});
    for (size_t i = 0; i < positions.size(); ++i) copies.push_back({&buffer, positions[i], &array.shards[i].bytes});
  }
  // The boxes of one array lie on different devices, so neighbours in `copies` can be copied in parallel.
  const int threads = std::max(copy_threads(), static_cast<int>(std::min<size_t>(devices, 64)));
  parallel_for(static_cast<int64_t>(copies.size()), threads, [&](int64_t i) {
    const Copy& copy = copies[static_cast<size_t>(i)];
    *copy.to = copy.from->download_shard(copy.position);
  });
  return snapshot;
}

int64_t snapshot_bytes(const Run& run, const TrainState& state) {
  int64_t bytes = 0;
  for (const StateArray& array : trained_arrays(run)) {
    if (array.on_disk) continue;
    const DeviceBuffer& buffer = state.buffers.at(array.name);
    for (const int position : first_positions(buffer))
      bytes += buffer.layout().boxes[static_cast<size_t>(position)].elements() * byte_size(array.shape.dtype);
  }
  return bytes;
}

int64_t snapshot_bytes(const Run& run) {
  int64_t bytes = 0;
  for (const StateArray& array : trained_arrays(run)) bytes += array.shape.bytes();
  return bytes;
}

}  // namespace fettle
