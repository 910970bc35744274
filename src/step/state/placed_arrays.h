// Defines placed_arrays, which lists the arrays of a step with their partitions, for display.
#pragma once

#include <cstdint>
#include <vector>

#include "run/run.h"
#include "sharding/picture.h"

namespace fettle {

// Returns frozen, reference and trained weights (or adapters), optimizer state, the batch, and the main activations of
// a layer, for rows of `length` positions. Compiles nothing. Throws UserError when a dim is not divisible by the axes
// that split it.
std::vector<PlacedArray> placed_arrays(const Run& run, int64_t length);

}  // namespace fettle
