// Defines random numbers that a program computes. They depend only on a key and on the element's place, so they do not
// depend on the mesh.
#pragma once

#include <cstdint>

#include "graph/tensor.h"

namespace fettle {

// Returns a uniform u32 for each element. The value depends only on the key (a u32 scalar) and the element's global
// index.
Tensor random_bits(const Dims& dims, const Tensor& key_u32);

// The key for random numbers of the positions of a batch. They depend on a sequence's number and on the position in the
// sequence, and not on the sequence's place in the batch.
struct PositionKey {
  Tensor seed;       // u32 scalar, mixed from the run's seed and the step
  Tensor sequences;  // i32 [B, T]: for each position, its sequence's number in the step
  Tensor positions;  // i32 [B, T]: the index of each position in its sequence
};

// Returns a uniform u32 for each element of [B, T, features]. The value depends only on key.seed, the sequence's
// number, the position in the sequence and the feature.
Tensor random_bits_of_positions(int64_t features, const PositionKey& key);

}  // namespace fettle
