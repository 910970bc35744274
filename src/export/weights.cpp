#include "export/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/log.h"

namespace fettle {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of f32, merged at a time

// The finite value farthest from zero.
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

// `value` is the farthest from zero of the tensor's.
void check_range(const std::string& name, double value, DType dtype) {
  if (fits(value, dtype)) return;
  const char* remedy = dtype == DType::kF16   ? "set export_dtype: bfloat16 or float32"
                       : dtype == DType::kF32 ? "no dtype of export_dtype holds it"
                                              : "set export_dtype: float32";
  throw UserError("'{}' has the value {:.6g}, which {} cannot hold and would make infinite; {}", name, value,
                  hf_name(dtype), remedy);
}

void check_merged(const std::string& name, const HostArray& before, const HostArray& after) {
  const std::span<const float> was = before.as<float>(), is = after.as<float>();
  for (size_t i = 0; i < is.size(); ++i)
    if (std::isfinite(was[i]) && !std::isfinite(is[i]))
      throw UserError("'{}': the merge makes {} of the value {:.6g}: what the adapter adds is not finite, it is broken",
                      name, is[i], was[i]);
}

// Copies one tensor, changed or converted a block of rows at a time.
void write_tensor(const BaseTensors& base, const BaseTensor& from, const std::vector<Change>& changes, DType dtype,
                  ModelWriter& writer, MergeCount& count) {
  const auto& [file, entry] = from.stored;
  const Dims& dims = from.shape.dims;
  if (changes.empty() && dtype == entry->shape.dtype && from.quantised == nullptr) {
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
  int64_t block = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, columns * 4));
  for (const Change& change : changes)
    if (change.magnitude && change.by_column) block = rows;
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
    const HostArray before = changes.empty() ? HostArray() : values.clone();
    for (const Change& change : changes) apply_change(change, first, values.as<float>());
    if (!changes.empty()) check_merged(from.name, before, values);
    check_range(from.name, farthest(std::as_const(values).as<float>()), dtype);
    const HostArray out = values.to(dtype);
    if (!changes.empty() && !std::ranges::equal(before.as<float>(), std::as_const(values).as<float>())) {
      count.nonzero = true;
      changed |= std::memcmp(before.to(dtype).data(), out.data(), out.bytes()) != 0;
    }
    writer.write(from.name, {out.data(), static_cast<size_t>(out.bytes())}, first * columns * byte_size(dtype));
  }
  count.tensors += changed;
  if (!changes.empty() && byte_size(dtype) < byte_size(count.narrowest)) count.narrowest = dtype;
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

MergeCount write_weights(const BaseTensors& base, const Changes* changes, std::optional<DType> dtype,
                         ModelWriter& writer) {
  MergeCount count;
  int64_t done = 0, total = 0;
  for (const BaseTensor& tensor : base.all()) total += tensor.shape.bytes();
  for (const BaseTensor& tensor : base.all()) {
    BaseTensor from = tensor;
    if (const auto saved = changes == nullptr ? std::nullopt : changes->saved(tensor.name)) {
      from.stored = *saved;
      from.quantised = nullptr;
      ++count.tensors, count.nonzero = true;
    }
    write_tensor(base, from, changes == nullptr ? std::vector<Change>{} : changes->of(tensor.name),
                 written_dtype(tensor, dtype), writer, count);
    done += tensor.shape.bytes();
    live_line(fmt::format("writing weights, {:.1f} of {:.1f} GB", done / 1e9, total / 1e9));
  }
  return count;
}

}  // namespace fettle
