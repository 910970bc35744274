// Defines the printing of a pruned block as the text of StableHLO operations.
#pragma once

#include <string>
#include <vector>

#include "graph/block.h"

namespace fettle {

struct PrintOptions {
  MeshAxes mesh;  // of one device: sharding constraints are dropped
  bool tf32 = false;
};

std::string mlir_type(const Shape& shape);  // "tensor<2x64xbf16>"
// "<@mesh, [{\"fsdp\"}, {}]>" with one entry per dim of a value of `rank` dims.
std::string mlir_sharding(const Partition& partition, int64_t rank);

// The body: one line per node, then the return of `block`'s outputs. Input i is called %arg<i>.
std::string print_body(const Block& block, const PrintOptions& options);

}  // namespace fettle
