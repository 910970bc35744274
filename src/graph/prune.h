// Defines pruning: a copy of a block without what its outputs do not need, loops included.
#pragma once

#include <memory>
#include <vector>

#include "graph/block.h"

namespace fettle {

// Keeps all inputs of `block`. Drops dead nodes, markers for the gradient, and of loops the dead carries, slices and
// captured values.
std::shared_ptr<Block> prune(const Block& block);

// For each node which of its results are needed.
using LiveValues = std::vector<std::vector<bool>>;

// The values that the flagged outputs of `block` need.
LiveValues live_values(const Block& block, const std::vector<bool>& outputs);

// A copy of `block` with its live values, and with the flagged ones of its inputs and outputs.
std::shared_ptr<Block> copy_live(const Block& block, const LiveValues& live, const std::vector<bool>& inputs,
                                 const std::vector<bool>& outputs);

}  // namespace fettle
