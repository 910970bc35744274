// Defines mix_sets, which puts the rows of several data sets into one order.
#pragma once

#include <cstdint>
#include <vector>

#include "data/data_spec.h"

namespace fettle {

// Returns the numbers of the rows in their new order. Rows are numbered over all sets, one set after another. Follows
// Hugging Face's interleave_datasets:
// - Without `weights`, the sets take turns. With `weights`, each turn draws a set at random by `seed`, with
//   probabilities proportional to the weights.
// - kInterleaveUnder ends when one set has no row left. kInterleaveOver ends when every row was taken at least once; a
//   set without rows left starts again. kInterleaveOnce takes every row once; a set without rows left is left out.
// `mix` must not be kConcat. Throws UserError when the result would have more than 100 times as many rows as all sets
// together.
std::vector<int64_t> mix_sets(const std::vector<int64_t>& sizes, Mix mix, const std::vector<double>& weights,
                              uint64_t seed);

}  // namespace fettle
