#include "models/blocks/layer_cache.h"

#include "graph/ops.h"

namespace fettle {
namespace {

// Returns the indices of the first element of a slice.
std::vector<Tensor> first_of(const CacheSlice& slice) {
  std::vector<Tensor> out(slice.stack.dims().size(), constant(0, DType::kI32));
  out[0] = slice.number;
  return out;
}

}  // namespace

Tensor read(const CacheSlice& slice) {
  Dims dims = slice.stack.dims();
  dims[0] = 1;
  const Tensor cut = dynamic_slice(slice.stack, first_of(slice), dims);
  return reshape(cut, Dims(dims.begin() + 1, dims.end()));
}

LayerCache LayerCache::of(const std::map<std::string, Tensor>& arrays) {
  LayerCache out;
  const Tensor zero = constant(0, DType::kI32);
  for (const auto& [name, array] : arrays) out.slices_[name] = {expand(array, 0), zero};
  return out;
}

Tensor LayerCache::at(const std::string& name) const {
  return read(slices_.at(name));
}

void LayerCache::replace(const std::string& name, const Tensor& array) {
  CacheSlice& slice = slices_.at(name);
  slice.stack = dynamic_update_slice(slice.stack, expand(array, 0), first_of(slice));
}

void LayerCache::append(const std::string& name, const Tensor& added, const Tensor& filled_B) {
  CacheSlice& slice = slices_.at(name);
  std::vector<Tensor> first = first_of(slice);
  for (int64_t row = 0; row < added.dim(0); ++row) {
    first[1] = constant(static_cast<double>(row), DType::kI32);
    first[2] = reshape(fettle::slice(filled_B, 0, row, row + 1), {});
    slice.stack = dynamic_update_slice(slice.stack, expand(fettle::slice(added, 0, row, row + 1), 0), first);
  }
}

}  // namespace fettle
