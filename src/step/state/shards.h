// Defines placed_arrays: where everything that a step holds lies on the mesh, for people to look at.
#pragma once

#include <cstdint>
#include <vector>

#include "run/run.h"
#include "sharding/picture.h"

namespace fettle {

// Frozen weights, trained weights or adapters, optimizer state, the batch, and the activations that the model holds to
// a place, for rows of `length` positions. Compiles nothing. Throws UserError when a dim does not divide.
std::vector<PlacedArray> placed_arrays(const Run& run, int64_t length);

}  // namespace fettle
