#include "models/blocks/short_convolution.h"

#include "graph/ops.h"

namespace fettle {

Tensor causal_convolution(const Tensor& x_BTC, const Tensor& weight_CW, const Tensor& segments_BT,
                          const Tensor& before) {
  const int64_t t = x_BTC.dim(1), c = x_BTC.dim(2), w = weight_CW.dim(1);
  const Tensor all =
      before ? concatenate({convert(before, x_BTC.dtype()), x_BTC}, 1) : pad(x_BTC, {0, w - 1, 0}, {0, 0, 0});
  // Adds 1 to all segment numbers, so that 0 marks the positions before the line. With `before`, these positions
  // belong to the line's first document.
  const Tensor segments = segments_BT + 1.0;
  const Tensor first = broadcast_to(slice(segments, 1, 0, 1), {segments.dim(0), w - 1});
  const Tensor of_all = concatenate({before ? first : zeros_like(first), segments}, 1);
  const Tensor weight = convert(weight_CW, x_BTC.dtype());
  Tensor sum;
  for (int64_t i = 0; i < w; ++i) {
    const int64_t from = w - 1 - i;
    const Tensor same = convert(compare(slice(of_all, 1, from, from + t), Direction::kEQ, segments), x_BTC.dtype());
    const Tensor part =
        slice(all, 1, from, from + t) * expand(same, 2) * reshape(slice(weight, 1, from, from + 1), {c});
    sum = sum ? sum + part : part;
  }
  return sum;
}

Tensor documents_of(const Forward& f, const Tensor& x) {
  return f.cache ? full(1, {DType::kI32, {x.dim(0), x.dim(1)}}) : f.segments;
}

Tensor real_positions(const Forward& f, const Tensor& x) {
  const int64_t b = x.dim(0), t = x.dim(1);
  const Tensor place = broadcast_to(expand(iota({DType::kI32, {t}}, 0), 0), {b, t});
  return expand(convert(compare(place, Direction::kLT, f.cache->real), DType::kF32), 2);
}

Tensor short_convolution(const Forward& f, const Tensor& x, const Tensor& weight_CW, LayerCache* cache) {
  const Tensor before = cache != nullptr ? cache->at("convolution") : Tensor{};
  const Tensor out = causal_convolution(x, weight_CW, documents_of(f, x), before);
  if (cache != nullptr) {
    const Tensor zero = constant(0, DType::kI32);
    const Tensor all = concatenate({convert(before, x.dtype()), x}, 1);
    cache->replace("convolution",
                   convert(dynamic_slice(all, {zero, f.cache->real, zero}, before.dims()), before.dtype()));
  }
  return out;
}

CacheArray convolution_cache(const LayerSet& layers, int64_t width, int64_t channels) {
  return {"convolution", layers, {1, width - 1, channels}, {"batch", "", ""}};
}

}  // namespace fettle
