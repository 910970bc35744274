// Defines mix_sets, which puts the rows of several data sets into one order.
#pragma once

#include <cstdint>
#include <vector>

#include "data/data_spec.h"

namespace fettle {

// Returns the numbers of the rows in their new order. The rows of set n are numbered from the sum of the sizes of the
// sets before it. Follows Hugging Face's interleave_datasets: without `weights` the sets take turns, until the first
// one has no row left (kInterleaveUnder) or until every row was taken at least once (kInterleaveOver; sets that are
// used up start again). With weights, each turn draws a set at random with these probabilities and `seed`, until one
// set is used up (kInterleaveUnder) or all are (kInterleaveOver). `mix` must not be kConcat. Throws UserError when the
// result would have more than 100 times as many rows as the sets.
std::vector<int64_t> mix_sets(const std::vector<int64_t>& sizes, Mix mix, const std::vector<double>& weights,
                              uint64_t seed);

}  // namespace fettle
