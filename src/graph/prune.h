// Defines pruning: a copy of a block without the values that its outputs do not need. Bodies of loops are pruned, too.
#pragma once

#include <memory>
#include <vector>

#include "graph/block.h"

namespace fettle {

// Returns a copy of `block` with all its inputs, but without dead nodes, without markers for the gradient, and without
// the dead carries, slices and captured values of loops.
std::shared_ptr<Block> prune(const Block& block);

// For each node, which results are needed.
using LiveValues = std::vector<std::vector<bool>>;

// Returns the values that the flagged outputs of `block` need.
LiveValues live_values(const Block& block, const std::vector<bool>& outputs);

// Returns a copy of `block` that has only the live values, the flagged inputs and the flagged outputs.
std::shared_ptr<Block> copy_live(const Block& block, const LiveValues& live, const std::vector<bool>& inputs,
                                 const std::vector<bool>& outputs);

}  // namespace fettle
