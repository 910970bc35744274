#include "step/state/batch_arrays.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "programs/layouts.h"

namespace fettle {
namespace {

struct PartOfBatch {
  BatchPart part;
  const char* name;
  HostArray Batch::*from;
};
constexpr PartOfBatch kParts[] = {{BatchPart::kTokens, "tokens", &Batch::tokens},
                                  {BatchPart::kTargets, "targets", &Batch::targets},
                                  {BatchPart::kPositions, "positions", &Batch::positions},
                                  {BatchPart::kSegments, "segments", &Batch::segments},
                                  {BatchPart::kSequences, "rows", &Batch::sequence_numbers},
                                  {BatchPart::kTokenTypes, "token_types", &Batch::token_types},
                                  {BatchPart::kClasses, "classes", &Batch::classes},
                                  {BatchPart::kPreferences, "preferences", &Batch::preferences},
                                  {BatchPart::kWeights, "weights", &Batch::weights},
                                  {BatchPart::kPrompts, "prompts", &Batch::prompts}};

const PartOfBatch& find(BatchPart part) {
  for (const PartOfBatch& one : kParts)
    if (one.part == part) return one;
  throw InternalError("a stage reads a part of the batch that does not exist");
}

}  // namespace

std::vector<BatchArray> batch_arrays(const Run& run, const BatchShape& shape, BatchExtent extent) {
  Dims places{shape.lines, shape.length};
  LogicalAxes axes{"batch", "length"};
  if (extent == BatchExtent::kStep) {
    places.insert(places.begin(), shape.micro_batches);
    axes.insert(axes.begin(), "");
  }
  std::vector<BatchArray> out;
  std::vector<BatchPart> parts = run.stage->batch;
  if (shape.weighted) parts.push_back(BatchPart::kWeights);
  if (shape.branched) parts.push_back(BatchPart::kPrompts);
  for (const BatchPart part : parts) {
    const PartOfBatch& found = find(part);
    BatchArray array{part, found.name, {DType::kI32, places}, axes, found.from};
    if (!by_position(part)) {
      array.shape.dims = {shape.sequences};
      array.axes = {""};
    }
    if (part == BatchPart::kWeights) array.shape.dtype = DType::kF32;
    if (part == BatchPart::kClasses) {
      array.shape.dtype = DType::kF32;
      array.shape.dims.push_back(run.labels()->classes_per_row());
      array.axes.push_back("");
    }
    out.push_back(std::move(array));
  }
  return out;
}

OwnLines own_lines(const Devices& devices, const Run& run) {
  if (devices.local_count() == devices.count()) return {};
  return [&](const BatchShape& shape) {
    const std::vector<BatchArray> arrays = batch_arrays(run, shape, BatchExtent::kStep);
    const BatchArray& tokens = *std::ranges::find(arrays, BatchPart::kTokens, &BatchArray::part);
    const Layout layout = layout_of(run.sharding.partition(tokens.axes, tokens.shape.dims, "the batch"),
                                    tokens.shape.dims, run.sharding.mesh());
    std::vector<bool> own(static_cast<size_t>(shape.lines), false);
    for (int position = 0; position < layout.count(); ++position) {
      if (!devices.client().is_local(layout.ordinal(position))) continue;
      const Box& box = layout.boxes[static_cast<size_t>(position)];
      for (int64_t line = box.start[1]; line < box.start[1] + box.size[1]; ++line)
        own[static_cast<size_t>(line)] = true;
    }
    return own;
  };
}

namespace {

DeviceBuffer upload_part(const Devices& devices, const Run& run, const BatchArray& array, const std::byte* bytes) {
  HostArray shaped(array.shape);
  std::memcpy(shaped.data(), bytes, static_cast<size_t>(shaped.bytes()));
  const Partition partition = run.sharding.partition(array.axes, array.shape.dims, "the batch");
  return DeviceBuffer::upload(devices.client(), shaped, layout_of(partition, array.shape.dims, run.sharding.mesh()));
}

}  // namespace

std::map<std::string, DeviceBuffer> upload_batch(const Devices& devices, const Run& run, const Batch& batch) {
  std::map<std::string, DeviceBuffer> out;
  for (const BatchArray& array : batch_arrays(run, batch.shape, BatchExtent::kStep)) {
    const HostArray& from = batch.*array.from;
    internal_check(from.shape() == array.shape, "upload_batch: {} has {}, but the program wants {}", array.name,
                   from.shape().to_string(), array.shape.to_string());
    out.emplace("batch/" + array.name, upload_part(devices, run, array, from.data()));
  }
  if (batch.shape.counted)
    out.emplace(kUsedMicroBatches,
                replicate(devices, HostArray::from<int32_t>({DType::kI32, {}}, {static_cast<int32_t>(batch.used)})));
  return out;
}

std::map<std::string, DeviceBuffer> upload_micro_batch(const Devices& devices, const Run& run, const Batch& batch,
                                                       int64_t micro_batch) {
  std::map<std::string, DeviceBuffer> out;
  for (const BatchArray& array : batch_arrays(run, batch.shape, BatchExtent::kMicroBatch)) {
    const HostArray& from = batch.*array.from;
    const int64_t bytes = array.shape.bytes(), parts = by_position(array.part) ? batch.shape.micro_batches : 1;
    internal_check(from.bytes() == parts * bytes, "upload_micro_batch: {} has {}, but the program wants {}", array.name,
                   from.shape().to_string(), array.shape.to_string());
    out.emplace("batch/" + array.name,
                upload_part(devices, run, array, from.data() + (parts == 1 ? 0 : micro_batch * bytes)));
  }
  return out;
}

}  // namespace fettle
