// Defines pack_lengths, which assigns documents to sequences so that little space stays empty.
#pragma once

#include <cstdint>
#include <vector>

namespace fettle {

// Returns the sequences as lists of indices into `lengths`; each index is used once, and each sum of lengths is at most
// `capacity`. Every length must be at most `capacity`. A sequence starts with the longest document left and continues
// with documents of similar length; its last three documents (or fewer) are chosen together so that they fill the
// sequence best. Among equal lengths, the smaller index comes first.
std::vector<std::vector<int64_t>> pack_lengths(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace fettle
