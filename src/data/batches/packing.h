// Defines capacity_of, which says how long a sequence may be, and pack_lengths, which assigns documents to sequences so
// that little space stays empty.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batch_spec.h"

namespace fettle {

// Returns the largest number of tokens of a sequence. It does not depend on spec.multiple, which depends on the mesh.
// So a run that is resumed on another mesh has the same sequences. spec.lengths must not be empty.
int64_t capacity_of(const BatchSpec& spec);

// Returns the sequences as lists of indices into `lengths`. Each index is used once, and each sum of lengths is at most
// `capacity`. Every length must be at most `capacity`. A sequence starts with the longest document that is left and
// continues with documents of similar length. The last documents of a sequence (up to three) are chosen together, so
// that they fill the sequence best. Among equal lengths, the smaller index comes first.
std::vector<std::vector<int64_t>> pack_lengths(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace fettle
