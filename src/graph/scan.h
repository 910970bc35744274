// Defines scan: a differentiable loop over the leading dim of its inputs. The program's size does not depend on the
// number of trips. scan follows jax.lax.scan; autodiff/scan_vjp.cpp builds the reverse loop.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "graph/block.h"

namespace fettle {

struct ScanStep {
  std::vector<Tensor> carries;  // the carries for the next trip; their shapes must not change
  std::vector<Tensor> ys;       // this trip's slices of the stacked results
};

struct ScanOptions {
  bool reverse = false;  // visit the slices from last to first
  Remat remat = Remat::kFull;
  int64_t first = 0;  // for xs with more than `trips` slices: the first slice that the loop reads
  // i32 scalar <= trips: the loop visits only the first `limit` slices. The ys of the other slices are zeros.
  Tensor limit;
  // The name of a mesh axis of size `trips`, or "". The devices along the axis run the trips at the same time: the
  // device at position i runs trip i. The slices of xs and ys are split over the axis. There are no carries, and
  // captured values have no gradient. The body's shardings must not name the axis. On a mesh without the axis, the
  // trips run one after another.
  std::string axis = {};
};

// Calls `body(index, carries, xs)` once, to build the loop. The body sees one slice of each of `xs` [trips, ...].
// `index` is an i32 scalar: a trip reads slice `index` of the xs and writes slice `index` of the ys. If one of the xs
// has more than `trips` slices, the trip reads slice `first` + `index` of this array instead. Returns the final carries
// and the ys stacked to [trips, ...].
using ScanBody =
    std::function<ScanStep(const Tensor& index, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs)>;
ScanStep scan(int64_t trips, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs, const ScanBody& body,
              ScanOptions options = {});

// Returns a copy of `block` whose nodes refer to tensors of the copy. The copy and `block` share the bodies of inner
// scans.
std::shared_ptr<Block> clone(const Block& block);

}  // namespace fettle
