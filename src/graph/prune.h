// Defines pruning: a copy of a block without what its outputs do not need, loops included.
#pragma once

#include <memory>

#include "graph/block.h"

namespace fettle {

// Keeps all inputs of `block` and drops dead nodes, and dead carries, slices and captures of scans.
std::shared_ptr<Block> prune(const Block& block);

}  // namespace fettle
