// Defines LayerCache: what one layer reads and writes in the cache of generation.
#pragma once

#include <map>
#include <string>

#include "graph/tensor.h"

namespace fettle {

// A layer's part of an array that all layers share: slice `number` (i32 scalar) of `stack` [layers, ...].
struct CacheSlice {
  Tensor stack, number;
};

// The parts of the cache that belong to one layer, by name. The stacks stay where they are: a write changes a part of
// a stack, and a compiler does this in place.
class LayerCache {
 public:
  LayerCache() = default;
  explicit LayerCache(std::map<std::string, CacheSlice> slices) : slices_(std::move(slices)) {}
  // A cache of arrays that no other layer shares, such as {"keys", [B, S, K, H]}.
  static LayerCache of(const std::map<std::string, Tensor>& arrays);

  const CacheSlice& slice(const std::string& name) const { return slices_.at(name); }
  // Cuts the layer's array out of its stack. A compiler may copy it.
  Tensor at(const std::string& name) const;
  // Writes the whole array, for example the state of a recurrent layer.
  void replace(const std::string& name, const Tensor& array);
  // Writes new positions, `added` [B, T, ...], to an array [B, S, ...]. Row b is written from position filled_B[b]
  // (i32 [B]) on.
  void append(const std::string& name, const Tensor& added, const Tensor& filled_B);

 private:
  std::map<std::string, CacheSlice> slices_;
};

// Returns slice.stack[slice.number].
Tensor read(const CacheSlice& slice);

}  // namespace fettle
