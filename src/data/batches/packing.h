// Defines pack_lengths: which documents share a row so that little of it stays empty.
#pragma once

#include <cstdint>
#include <vector>

namespace fettle {

// Rows of indices into `lengths`, each length at most `capacity`, every index once. A row begins with the longest
// document that is left and goes on with alike ones; the last three at most are chosen together to fill it as far as
// can be. Of equal lengths, earlier indices are taken first.
std::vector<std::vector<int64_t>> pack_lengths(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace fettle
