#include "plan/compiled/device_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/arrays/shape.h"
#include "base/error.h"

namespace fettle {
namespace {

constexpr int64_t kMostIds = 1 << 20;

// Returns the product of the sizes. Throws DeviceError when a size is not positive or the product exceeds the largest
// possible number of devices.
int64_t device_count(const Dims& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) {
    if (size < 1 || size > kMostIds || (count *= size) > kMostIds)
      throw DeviceError("the compiled program has a device group of sizes {}", to_string(sizes));
  }
  return count;
}

template <typename Repeated>
Dims to_dims(const Repeated& values) {
  return Dims(values.begin(), values.end());
}

// Returns the numbers 0, 1, 2, ... as an array of `sizes`, transposed by `order` and flattened.
std::vector<int64_t> transposed_iota(const Dims& sizes, Dims order) {
  const int64_t count = device_count(sizes);
  if (order.empty()) {
    order.resize(sizes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  Dims sorted = order, positions(sizes.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::sort(sorted.begin(), sorted.end());
  if (sorted != positions)
    throw DeviceError(
        "the compiled program reorders an array of devices with {} dims by {}, which is not a permutation",
        sizes.size(), to_string(order));
  Dims stride(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) stride[d - 1] = stride[d] * sizes[d];
  std::vector<int64_t> ids(count, 0);
  int64_t inner = count;
  for (int64_t dim : order) {
    inner /= sizes[dim];
    for (int64_t i = 0; i < count; ++i) ids[i] += i / inner % sizes[dim] * stride[dim];
  }
  return ids;
}

std::vector<std::vector<int64_t>> of_iota(const hlo::IotaGroups& iota) {
  const int64_t groups = iota.num_replica_groups(), each = iota.num_devices_per_group();
  const int64_t count = device_count({groups, each});
  Dims sizes = to_dims(iota.reshape_dims());
  if (sizes.empty()) sizes = {count};
  if (device_count(sizes) != count)
    throw DeviceError("the compiled program's array of devices {} cannot be divided into {} groups of {}",
                      to_string(sizes), groups, each);
  const std::vector<int64_t> ids = transposed_iota(sizes, to_dims(iota.transpose_perm()));
  std::vector<std::vector<int64_t>> out(groups);
  for (int64_t g = 0; g < groups; ++g) out[g].assign(ids.begin() + g * each, ids.begin() + (g + 1) * each);
  return out;
}

std::vector<std::vector<int64_t>> of_mesh(const hlo::MeshGroups& groups) {
  Dims sizes;
  for (const auto& axis : groups.mesh().axes()) sizes.push_back(axis.size());
  const int64_t count = device_count(sizes);
  std::vector<int64_t> ids = to_dims(groups.mesh().device_ids());
  if (ids.empty()) {
    const auto& iota = groups.mesh().iota();
    ids = iota.reshape_dims().empty() ? transposed_iota({count}, {})
                                      : transposed_iota(to_dims(iota.reshape_dims()), to_dims(iota.transpose_perm()));
  }
  if (static_cast<int64_t>(ids.size()) != count)
    throw DeviceError("the compiled program's mesh has the sizes {} but lists {} devices", to_string(sizes),
                      ids.size());
  // Devices are in one group when their coordinates differ only along the axes that `groups` names. A Part is one of
  // these axes, or a sub-axis of such an axis. If the coordinates of two devices differ by 1 along the Part, the
  // devices are `inner` places apart in `ids`.
  struct Part {
    int64_t inner, size;
  };
  std::vector<Part> parts;
  for (const auto& ref : groups.axes()) {
    if (ref.axis() < 0 || ref.axis() >= static_cast<int64_t>(sizes.size()))
      throw DeviceError("the compiled program's mesh has {} axes, but a group uses axis number {}", sizes.size(),
                        ref.axis());
    int64_t inner = 1, size = sizes[ref.axis()];
    for (size_t a = ref.axis() + 1; a < sizes.size(); ++a) inner *= sizes[a];
    if (ref.has_part()) {
      const int64_t before = ref.part().pre_size(), own = ref.part().size();
      if (before < 1 || own < 1 || before > size || own > size || size % (before * own) != 0)
        throw DeviceError("the compiled program's mesh axis of {} devices is not divisible by {} times {}", size,
                          before, own);
      inner *= size / (before * own);
      size = own;
    }
    parts.push_back({inner, size});
  }
  std::map<int64_t, std::vector<int64_t>> by_rest;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (const Part& part : parts) rest -= i / part.inner % part.size * part.inner;
    by_rest[rest].push_back(ids[i]);
  }
  std::vector<std::vector<int64_t>> out;
  for (auto& [rest, members] : by_rest) out.push_back(std::move(members));
  return out;
}

std::vector<std::vector<int64_t>> of_list(const google::protobuf::RepeatedPtrField<hlo::ReplicaGroup>& list) {
  std::vector<std::vector<int64_t>> out;
  for (const auto& group : list) out.push_back(to_dims(group.replica_ids()));
  return out;
}

}  // namespace

std::vector<std::vector<int64_t>> device_groups(const hlo::Instruction& instruction) {
  if (instruction.has_mesh_groups()) return of_mesh(instruction.mesh_groups());
  if (instruction.has_iota_groups()) return of_iota(instruction.iota_groups());
  if (instruction.has_device_list()) {
    if (instruction.device_list().has_iota()) return of_iota(instruction.device_list().iota());
    return of_list(instruction.device_list().replica_groups());
  }
  return of_list(instruction.replica_groups());
}

}  // namespace fettle
