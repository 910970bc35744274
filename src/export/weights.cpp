#include "export/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"

namespace fettle {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // f32 bytes that are merged at a time

// Returns the finite value with the largest magnitude.
template <typename T>
double farthest(std::span<const T> values) {
  T found = 0;
  for (T value : values)
    if (std::isfinite(value) && std::abs(value) > std::abs(found)) found = value;
  return found;
}

bool fits(double value, DType dtype) {
  const HostArray one = HostArray::from<double>({DType::kF64, {1}}, {value});
  return std::isfinite(one.to(dtype).to(DType::kF64).as<double>()[0]);
}

// `value` is the tensor's value with the largest magnitude.
void check_range(const std::string& name, double value, DType dtype) {
  if (fits(value, dtype)) return;
  const char* remedy = dtype == DType::kF16   ? "set export_dtype: bfloat16 or float32"
                       : dtype == DType::kF32 ? "no export_dtype can represent it"
                                              : "set export_dtype: float32";
  throw UserError("'{}' has the value {:.6g}, which {} cannot represent: it would become infinite; {}", name, value,
                  hf_name(dtype), remedy);
}

void check_merged(const std::string& name, const HostArray& before, const HostArray& after) {
  const std::span<const float> was = before.as<float>(), is = after.as<float>();
  for (size_t i = 0; i < is.size(); ++i)
    if (std::isfinite(was[i]) && !std::isfinite(is[i]))
      throw UserError("'{}': the merge gives {} for the value {:.6g}; the adapter has weights that are not finite",
                      name, is[i], was[i]);
}

// Distributes the rows of a box over the cores.
void apply_to_rows(const TensorMerge& merge, const Box& box, const Dims& dims, std::span<float> values) {
  const int64_t rows = box.size[0], columns = box.elements() / rows;
  const int64_t worth = std::clamp<int64_t>(box.elements() / 65536, 1, rows);  // fewer elements are not worth a thread
  const int64_t parts = std::min<int64_t>(copy_threads(), worth);
  parallel_for(parts, static_cast<int>(parts), [&](int64_t part) {
    const int64_t first = rows * part / parts, end = rows * (part + 1) / parts;
    Box some = box;
    some.start[0] += first, some.size[0] = end - first;
    merge.apply(some, dims, values.data() + first * columns);
  });
}

// Copies one tensor, a block of rows at a time, merging or converting it if needed.
void write_tensor(const BaseTensors& base, const BaseTensor& from, const AdapterMerge* merge, DType dtype,
                  ModelWriter& writer, MergeCount& count) {
  const auto& [file, entry] = from.stored;
  const Dims& dims = from.shape.dims;
  const bool merges = merge != nullptr && merge->adds_to(from.param);
  if (!merges && dtype == entry->shape.dtype && from.quantised == nullptr) {
    if (entry->dense()) {
      file->with_bytes(*entry, [&](std::span<const std::byte> bytes) { writer.write(from.name, bytes); });
    } else {
      const HostArray values = file->read(*entry);
      writer.write(from.name, {values.data(), static_cast<size_t>(values.bytes())});
    }
    file->release(*entry);
    return;
  }
  const ValueReader reader(base, from);
  const int64_t rows = dims.empty() ? 1 : dims[0], columns = rows == 0 ? 0 : from.shape.elements() / rows;
  const int64_t block = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, columns * 4));
  TensorMerge added;
  if (merges) added = merge->merge_of(from.param, [&](const Box& box, float* out) { reader.read(box, out); });
  bool changed = false;
  for (int64_t first = 0; first < rows && columns > 0; first += block) {
    Box box{Dims(dims.size(), 0), dims};
    if (!dims.empty()) box.start[0] = first, box.size[0] = std::min(block, rows - first);
    HostArray values({DType::kF32, box.size});
    reader.read(box, values.as<float>().data());
    if (entry->shape.dtype == DType::kF64) {
      HostArray exact({DType::kF64, box.size});
      file->read_slice(*entry, box, DType::kF64, reinterpret_cast<std::byte*>(exact.data()));
      check_range(from.name, farthest(std::as_const(exact).as<double>()), DType::kF32);
    }
    const HostArray before = merges ? values.clone() : HostArray();
    if (merges) apply_to_rows(added, box, dims, values.as<float>());
    if (merges) check_merged(from.name, before, values);
    check_range(from.name, farthest(std::as_const(values).as<float>()), dtype);
    const HostArray out = values.to(dtype);
    if (merges && !std::ranges::equal(before.as<float>(), std::as_const(values).as<float>())) {
      count.nonzero = true;
      changed |= std::memcmp(before.to(dtype).data(), out.data(), out.bytes()) != 0;
    }
    writer.write(from.name, {out.data(), static_cast<size_t>(out.bytes())}, first * columns * byte_size(dtype));
  }
  count.tensors += changed;
  if (merges && byte_size(dtype) < byte_size(count.narrowest)) count.narrowest = dtype;
  file->release(*entry);
}

DType written_dtype(const BaseTensor& tensor, std::optional<DType> dtype) {
  return dtype && is_float(tensor.shape.dtype) ? *dtype : tensor.shape.dtype;
}

}  // namespace

NamedShapes written_shapes(const BaseTensors& base, std::optional<DType> dtype) {
  NamedShapes shapes;
  for (const BaseTensor& tensor : base.all())
    shapes.emplace_back(tensor.name, tensor.shape.with_dtype(written_dtype(tensor, dtype)));
  return shapes;
}

MergeCount write_weights(const BaseTensors& base, const AdapterMerge* merge, std::optional<DType> dtype,
                         ModelWriter& writer) {
  MergeCount count;
  int64_t done = 0, total = 0;
  for (const BaseTensor& tensor : base.all()) total += tensor.shape.bytes();
  for (const BaseTensor& tensor : base.all()) {
    BaseTensor from = tensor;
    const auto saved = merge == nullptr ? std::nullopt : merge->saved(tensor.name);
    if (saved) {
      from.stored = *saved;
      from.quantised = nullptr;
      count.nonzero = true;
    }
    const int64_t counted = count.tensors;
    write_tensor(base, from, merge, written_dtype(tensor, dtype), writer, count);
    // Counts a replaced tensor once, also when later adapters change it.
    if (saved && count.tensors == counted) ++count.tensors;
    done += tensor.shape.bytes();
    live_line(fmt::format("writing weights, {:.1f} of {:.1f} GB", done / 1e9, total / 1e9));
  }
  return count;
}

}  // namespace fettle
