#include "step/snapshot.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/parallel.h"

namespace fettle {
namespace {

// Positions in the mesh of the devices whose boxes are copied, one a distinct box.
std::vector<int> first_positions(const Layout& layout) {
  std::vector<int> positions;
  const std::vector<int> part_of = layout.part_of();
  for (int i = 0; i < layout.count(); ++i)
    if (part_of[static_cast<size_t>(i)] == static_cast<int>(positions.size())) positions.push_back(i);
  return positions;
}

// The number behind `key` in a file of "key number" lines.
int64_t number_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (int64_t value = 0; word == key && file >> value) return value;
  return -1;
}

}  // namespace

HostShards download_shards(const DeviceBuffer& buffer) {
  HostShards out{buffer.shape(), {}};
  for (int position : first_positions(buffer.layout()))
    out.shards.push_back({buffer.layout().boxes[static_cast<size_t>(position)], buffer.download_shard(position)});
  return out;
}

Snapshot take_snapshot(const Job& job, const TrainState& state) {
  struct Copy {
    const DeviceBuffer* from;
    int position;
    HostArray* to;
  };
  Snapshot snapshot;
  std::vector<Copy> copies;
  size_t devices = 1;
  for (const StateArray& trained : trained_arrays(job)) {
    const DeviceBuffer& buffer = state.buffers.at(trained.name);
    HostShards& array = snapshot[trained.name];
    array.shape = buffer.shape();
    const std::vector<int> positions = first_positions(buffer.layout());
    devices = std::max(devices, positions.size());
    for (int position : positions) array.shards.push_back({buffer.layout().boxes[static_cast<size_t>(position)], {}});
    for (size_t i = 0; i < positions.size(); ++i) copies.push_back({&buffer, positions[i], &array.shards[i].bytes});
  }
  // The boxes of one array lie on different devices, so neighbours in the list do not wait for each other.
  const int threads = std::max(copy_threads(), static_cast<int>(std::min<size_t>(devices, 64)));
  parallel_for(static_cast<int64_t>(copies.size()), threads, [&](int64_t i) {
    const Copy& copy = copies[static_cast<size_t>(i)];
    *copy.to = copy.from->download_shard(copy.position);
  });
  return snapshot;
}

int64_t snapshot_bytes(const Job& job) {
  int64_t bytes = 0;
  for (const StateArray& array : trained_arrays(job)) bytes += array.shape.bytes();
  return bytes;
}

int64_t available_memory() {
  const int64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
  int64_t available = kilobytes < 0 ? std::numeric_limits<int64_t>::max() : kilobytes * 1024;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  if (int64_t limit = 0; limit_file >> limit) {
    // Pages of files go when memory is needed; those of programs stay.
    const int64_t used = number_in("/sys/fs/cgroup/memory.stat", "anon");
    if (used >= 0) available = std::min(available, std::max<int64_t>(0, limit - used));
  }
  return available;
}

}  // namespace fettle
