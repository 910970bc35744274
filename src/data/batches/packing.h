// Defines pack_lengths, which assigns documents to sequences so that little space stays empty.
#pragma once

#include <cstdint>
#include <vector>

namespace fettle {

// Returns the sequences as lists of indices into `lengths`. Each index is used once, and each sum of lengths is at most
// `capacity`. Every length must be at most `capacity`. A sequence starts with the longest document that is left and
// continues with documents of similar length. The last documents of a sequence (up to three) are chosen together, so
// that they fill the sequence best. Among equal lengths, the smaller index comes first.
std::vector<std::vector<int64_t>> pack_lengths(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace fettle
