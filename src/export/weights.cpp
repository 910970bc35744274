#include "export/weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "base/interrupt.h"
#include "base/progress.h"
#include "export/merged_tensor.h"

namespace fettle {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // bytes of f32 values that are merged at a time

std::string remedy_for(DType dtype) {
  return dtype == DType::kF16   ? "set export_dtype: bfloat16 or float32"
         : dtype == DType::kF32 ? "no export_dtype can represent it"
                                : "set export_dtype: float32";
}

// Writes one tensor. If the tensor must be merged or converted, merges or converts one block of rows at a time.
// Otherwise copies the tensor.
void write_tensor(const MergedTensor& tensor, const BaseTensor& from, DType dtype, ModelWriter& writer,
                  MergeCount& count) {
  const auto& [file, entry] = tensor.stored();
  const Dims& dims = tensor.dims();
  const bool merges = tensor.merges();
  if (!merges && dtype == entry->shape.dtype && (from.quantised == nullptr || tensor.saved())) {
    if (entry->dense()) {
      file->with_bytes(*entry, [&](std::span<const std::byte> bytes) { writer.write(from.name, bytes); });
    } else {
      const HostArray values = file->read(*entry);
      writer.write(from.name, {values.data(), static_cast<size_t>(values.bytes())});
    }
    file->release(*entry);
    return;
  }
  const int64_t rows = dims.empty() ? 1 : dims[0], columns = rows == 0 ? 0 : from.shape.elements() / rows;
  const int64_t block = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, columns * 4));
  bool changed = false;
  for (int64_t first = 0; first < rows && columns > 0; first += block) {
    Box box{Dims(dims.size(), 0), dims};
    if (!dims.empty()) box.start[0] = first, box.size[0] = std::min(block, rows - first);
    const MergedTensor::Values values = tensor.read(box);
    check_range(from.name, values.after, dtype, remedy_for(dtype));
    const HostArray out = values.after.to(dtype);
    if (tensor.merges() && !std::ranges::equal(values.before.as<float>(), values.after.as<float>())) {
      count.nonzero = true;
      changed |= std::memcmp(values.before.to(dtype).data(), out.data(), out.bytes()) != 0;
    }
    writer.write(from.name, {out.data(), static_cast<size_t>(out.bytes())}, first * columns * byte_size(dtype));
  }
  count.tensors += changed;
  if (merges && byte_size(dtype) < byte_size(count.narrowest)) count.narrowest = dtype;
  file->release(*entry);
}

// Tensors of later layers keep their dtype, because no parameter says which of them must stay in float32.
DType written_dtype(const BaseTensor& tensor, std::optional<DType> dtype) {
  if (!dtype || !is_float(tensor.shape.dtype) || tensor.of_later_layer) return tensor.shape.dtype;
  return tensor.used_by != nullptr ? tensor.used_by->written_dtype(*dtype) : *dtype;
}

bool becomes_codes(const BaseTensor& tensor, const WrittenForm& form) {
  return form.compressed != nullptr && form.compressed->applies_to(tensor);
}

}  // namespace

void check_signal() {
  InterruptScope::check("exporting; nothing was exported");
}

NamedShapes written_shapes(const BaseTensors& base, const WrittenForm& form) {
  NamedShapes shapes;
  for (const BaseTensor& tensor : base.all()) {
    if (becomes_codes(tensor, form))
      std::ranges::copy(form.compressed->shapes(tensor), std::back_inserter(shapes));
    else
      shapes.emplace_back(tensor.name, tensor.shape.with_dtype(written_dtype(tensor, form.dtype)));
  }
  return shapes;
}

MergeCount write_weights(const BaseTensors& base, const AdapterMerge* merge, const WrittenForm& form,
                         ModelWriter& writer) {
  MergeCount count;
  int64_t done = 0, total = 0;
  ProgressLine progress;
  for (const BaseTensor& tensor : base.all()) total += tensor.shape.bytes();
  for (const BaseTensor& tensor : base.all()) {
    check_signal();
    const MergedTensor merged(base, tensor, merge);
    if (merged.saved()) count.nonzero = true;
    const int64_t counted = count.tensors;
    if (becomes_codes(tensor, form))
      form.compressed->write(merged, tensor, writer, count);
    else
      write_tensor(merged, tensor, written_dtype(tensor, form.dtype), writer, count);
    // Counts a replaced tensor only once, even when later adapters change it.
    if (merged.saved() && count.tensors == counted) ++count.tensors;
    done += tensor.shape.bytes();
    progress.show([&] { return fmt::format("writing weights, {:.1f} of {:.1f} GB", done / 1e9, total / 1e9); });
  }
  return count;
}

}  // namespace fettle
