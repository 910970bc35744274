#include "step/state/side_adapter_arrays.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "programs/layouts.h"

namespace fettle {
namespace {

// Copies the values of one adapter's tensor into the joined tensor of a layer. `joined` is [R, in] for A and [out, R]
// for B. `first` is the adapter's first row in the joined A and its first column in the joined B.
void copy_ranks(const AdapterFolder& adapter, const TensorEntry& entry, bool is_a, int64_t joined_rank, int64_t first,
                std::span<float> joined) {
  const HostArray own = adapter.file.read(entry).to(DType::kF32);
  const std::span<const float> values = own.as<float>();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    throw UserError("{}: the tensor '{}' has values that are not finite; train the adapter again",
                    adapter.file.path().string(), entry.name);
  const int64_t rows = entry.shape.dims.at(0), columns = entry.shape.dims.at(1);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t to = is_a ? (first + row) * columns : row * joined_rank + first;
    std::ranges::copy(values.subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns)),
                      joined.begin() + to);
  }
}

}  // namespace

DeviceBuffer load_joined(const Devices& devices, const Run& run, const Param& param,
                         const std::vector<AdapterFolder>& folders) {
  const Shape shape = stacked_shape(param, DType::kF32);
  HostArray all = HostArray::zeros(shape);
  const bool is_a = param.role == Role::kLoraA;
  const int64_t count = param.stored_count(), size = shape.elements() / count, rank = run.adapter.lora->rank;
  for (int64_t i = 0; i < count; ++i)
    for (size_t k = 0; k < folders.size(); ++k) {
      const TensorEntry* entry = folders[k].find(param.stored_name(i));
      if (entry == nullptr) continue;  // the adapter does not change this layer
      Dims wanted = param.stored_dims();
      wanted.at(is_a ? 0 : 1) = run.adapter.side_by_side[k].options.rank;
      if (entry->shape.dims != wanted)
        throw UserError("{}: the tensor '{}' is {}, but the model needs {}", folders[k].file.path().string(),
                        entry->name, entry->shape.to_string(), Shape{entry->shape.dtype, wanted}.to_string());
      copy_ranks(folders[k], *entry, is_a, rank, first_rank(run.adapter.side_by_side, k),
                 all.as<float>().subspan(static_cast<size_t>(i * size), static_cast<size_t>(size)));
    }
  return DeviceBuffer::upload(devices.client(),
                              run.precision.trained == DType::kF32 ? std::move(all) : all.to(run.precision.trained),
                              layout_of(run.partition(param), shape.dims, run.sharding.mesh()));
}

}  // namespace fettle
