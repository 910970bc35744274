#include "export/merged_tensor.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/parallel.h"

namespace fettle {
namespace {

// Returns the finite value with the largest magnitude.
template <typename T>
double farthest(std::span<const T> values) {
  T found = 0;
  for (T value : values)
    if (std::isfinite(value) && std::abs(value) > std::abs(found)) found = value;
  return found;
}

void check_value(const std::string& name, double value, DType dtype, const std::string& remedy) {
  const HostArray one = HostArray::from<double>({DType::kF64, {1}}, {value});
  if (std::isfinite(one.to(dtype).to(DType::kF64).as<double>()[0])) return;
  throw UserError("'{}' has the value {:.6g}, which {} cannot represent: it would become infinite; {}", name, value,
                  hf_name(dtype), remedy);
}

void check_merged(const std::string& name, const HostArray& before, const HostArray& after) {
  const std::span<const float> was = before.as<float>(), is = after.as<float>();
  for (size_t i = 0; i < is.size(); ++i)
    if (std::isfinite(was[i]) && !std::isfinite(is[i]))
      throw UserError(
          "'{}': the merge gives {} for the value {:.6g}; the adapter's weights are not finite or too large", name,
          is[i], was[i]);
}

// Applies the merge to the values of a box. Distributes the rows of the box over the cores.
void apply_to_rows(const TensorMerge& merge, const Box& box, const Dims& dims, std::span<float> values) {
  const int64_t rows = box.size[0], columns = box.elements() / rows;
  const int64_t worth = std::clamp<int64_t>(box.elements() / 65536, 1, rows);  // at least 65536 elements per thread
  const int64_t parts = std::min<int64_t>(copy_threads(), worth);
  parallel_for(parts, static_cast<int>(parts), [&](int64_t part) {
    const int64_t first = rows * part / parts, end = rows * (part + 1) / parts;
    Box some = box;
    some.start[0] += first, some.size[0] = end - first;
    merge.apply(some, dims, values.data() + first * columns);
  });
}

BaseTensor source_of(const BaseTensor& tensor, const AdapterMerge* merge) {
  BaseTensor from = tensor;
  const auto saved = merge == nullptr ? std::nullopt : merge->saved(tensor.param);
  if (!saved) return from;
  from.stored = *saved;
  from.quantised = nullptr;
  return from;
}

}  // namespace

MergedTensor::MergedTensor(const BaseTensors& base, const BaseTensor& tensor, const AdapterMerge* merge)
    : from_(source_of(tensor, merge)), saved_(merge != nullptr && merge->saved(tensor.param)), reader_(base, from_) {
  if (merge != nullptr && merge->adds_to(from_.param))
    added_ = merge->merge_of(from_.param, [this](const Box& box, float* out) { reader_.read(box, out); });
}

MergedTensor::Values MergedTensor::read(const Box& box) const {
  Values values{{}, HostArray({DType::kF32, box.size})};
  reader_.read(box, values.after.as<float>().data());
  const auto& [file, entry] = from_.stored;
  if (entry->shape.dtype == DType::kF64) {
    HostArray exact({DType::kF64, box.size});
    file->read_slice(*entry, box, DType::kF64, reinterpret_cast<std::byte*>(exact.data()));
    check_value(from_.name, farthest(std::as_const(exact).as<double>()), DType::kF32,
                "no export_dtype can represent it");
  }
  if (!merges() || box.elements() == 0) return values;
  values.before = values.after.clone();
  apply_to_rows(added_, box, dims(), values.after.as<float>());
  check_merged(from_.name, values.before, values.after);
  return values;
}

void check_range(const std::string& name, const HostArray& values, DType dtype, const std::string& remedy) {
  check_value(name, farthest(values.as<float>()), dtype, remedy);
}

}  // namespace fettle
