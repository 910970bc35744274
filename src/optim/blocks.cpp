#include "optim/blocks.h"

#include "graph/ops.h"

namespace fettle {

Blocks blocks_of(const OptimWeight& weight, int64_t size) {
  const Dims& dims = weight.shape.dims;
  const Dims layer = weight.own_dims();
  const int64_t columns = layer.back(), rows = layer.size() > 1 ? layer[layer.size() - 2] : 1;
  Blocks out;
  if (columns % size == 0) {
    out.absmax = dims;
    out.absmax.back() = columns / size;
    out.axes = weight.axes;
    out.whole = out.absmax;
    out.whole.push_back(size);
    out.elements = {-1};
  } else if (size % columns == 0 && rows % (size / columns) == 0) {
    out.absmax = {dims.begin(), dims.end() - 1};
    out.absmax.back() = rows * columns / size;
    out.axes = {weight.axes.begin(), weight.axes.end() - 1};
    out.whole = out.absmax;
    out.whole.insert(out.whole.end(), {size / columns, columns});
    out.elements = {-2, -1};
  } else {
    const int64_t n = product(layer), blocks = (n + size - 1) / size;
    out.absmax = weight.stack_dims();
    out.axes.assign(weight.axes.begin(), weight.axes.begin() + weight.stacked);
    out.absmax.push_back(blocks);
    out.axes.push_back("");
    out.whole = out.absmax;
    out.whole.push_back(size);
    out.elements = {-1};
    out.padding = blocks * size - n;
  }
  return out;
}

Tensor to_blocks(const Tensor& x, const OptimWeight& weight, const Blocks& blocks) {
  if (blocks.padding == 0) return reshape(x, blocks.whole);
  Dims flat = weight.stack_dims();
  flat.push_back(product(weight.own_dims()));
  Dims none(flat.size(), 0), high = none;
  high.back() = blocks.padding;
  return reshape(pad(reshape(x, flat), none, high), blocks.whole);
}

Tensor from_blocks(const Tensor& x, const OptimWeight& weight, const Blocks& blocks) {
  if (blocks.padding == 0) return reshape(x, weight.shape.dims);
  Dims flat = weight.stack_dims();
  const int64_t n = product(weight.own_dims());
  flat.push_back(n + blocks.padding);
  return reshape(slice(reshape(x, flat), static_cast<int64_t>(flat.size()) - 1, 0, n), weight.shape.dims);
}

Tensor spread(const Tensor& absmax, const Blocks& blocks) {
  Dims dims = blocks.absmax;
  dims.resize(blocks.whole.size(), 1);
  return reshape(absmax, dims);
}

}  // namespace fettle
