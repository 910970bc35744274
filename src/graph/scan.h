// Defines scan: a loop over the leading dim, differentiable, whose size in the program does not grow with its trips.
// After jax.lax.scan; its reverse loop is built in scan_vjp.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "graph/block.h"

namespace fettle {

struct ScanStep {
  std::vector<Tensor> carries;  // same shapes as they came in
  std::vector<Tensor> ys;       // this trip's slices of the stacked results
};

struct ScanOptions {
  bool reverse = false;  // visit the slices from last to first
  Remat remat = Remat::kFull;
  // i32 scalar <= trips: only this many trips are made, of the first slices; the ys of the others are zeros.
  Tensor limit;
};

// Calls `body(index, carries, xs)` once, to build it. `xs` [trips, ...] are seen without their first dim; `index` is
// the i32 number of the slice. Returns the final carries and the ys stacked [trips, ...].
using ScanBody =
    std::function<ScanStep(const Tensor& index, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs)>;
ScanStep scan(int64_t trips, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs, const ScanBody& body,
              ScanOptions options = {});

// A copy of `block` whose tensors refer to the copy; bodies of scans inside are shared.
std::shared_ptr<Block> clone(const Block& block);

}  // namespace fettle
