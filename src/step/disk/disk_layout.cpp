#include "step/disk/disk_layout.h"

#include <algorithm>

#include "disk/staging_ring.h"
#include "programs/layouts.h"
#include "step/disk/update_program.h"

namespace fettle {
namespace {

// The staging memory has at least this size, unless the whole state is smaller. With less memory, a read would have to
// wait until earlier layers are written.
constexpr int64_t kStagingBytes = int64_t{1} << 30;

template <typename IsLocal>
std::vector<DiskArray::Part> local_parts(const Layout& layout, const IsLocal& is_local) {
  std::vector<DiskArray::Part> out;
  for (int position = 0; position < layout.count(); ++position) {
    const Box& box = layout.boxes[static_cast<size_t>(position)];
    if (!is_local(layout.ordinal(position)) || std::ranges::find(out, box, &DiskArray::Part::box) != out.end())
      continue;
    const auto first = std::ranges::find(layout.boxes, box) - layout.boxes.begin();
    out.push_back({box, position, first == position});
  }
  return out;
}

template <typename IsLocal>
DiskLayout layout_for(const Run& run, const IsLocal& is_local) {
  DiskLayout out;
  int64_t largest = 0;
  for (const Param& param : run.trained) {
    DiskParam one{.layers = param.layer_count(), .arrays = {}, .start = out.file_bytes};
    const std::vector<StateArray> whole = disk_arrays(run, param), layer = layer_arrays(run, param);
    for (size_t i = 0; i < layer.size(); ++i) {
      DiskArray array{.name = layer[i].name, .whole = whole[i].shape, .shape = layer[i].shape};
      array.layout = layout_of(layer[i].partition, layer[i].shape.dims, run.sharding.mesh());
      array.parts = local_parts(array.layout, is_local);
      array.part_bytes = array.parts[0].box.elements() * byte_size(array.shape.dtype);
      array.part_stride = in_disk_blocks(array.part_bytes);
      array.offset = one.block_bytes;
      const auto parts = static_cast<int64_t>(array.parts.size());
      one.block_bytes += parts * array.part_stride;
      one.arrays.push_back(std::move(array));
    }
    out.file_bytes += one.layers * one.block_bytes;
    largest = std::max(largest, one.block_bytes);
    out.params.push_back(std::move(one));
  }
  out.staging_bytes = std::min(out.file_bytes, std::max(2 * largest, kStagingBytes));
  return out;
}

}  // namespace

DiskLayout disk_layout(const Run& run) {
  return layout_for(run, [](int) { return true; });
}

DiskLayout disk_layout(const Run& run, const Devices& devices) {
  return layout_for(run, [&](int ordinal) { return devices.client().is_local(ordinal); });
}

}  // namespace fettle
