// Defines mix_sets: the order in which the rows of several data sets become one list.
#pragma once

#include <cstdint>
#include <vector>

#include "data/data_spec.h"

namespace fettle {

// Numbers of rows in their new order; the rows of set n are numbered from the sum of the sizes before it. Follows
// Hugging Face's interleave_datasets: without `weights` the sets take turns, until the first one has no row left
// (kInterleaveUnder) or until each row was taken (kInterleaveOver; shorter sets start again). With weights, each turn
// draws its set by them and `seed`, until one set is used up, or all are. `mix` is not kConcat. Throws UserError when
// that would repeat rows more than 100 times over.
std::vector<int64_t> mix_sets(const std::vector<int64_t>& sizes, Mix mix, const std::vector<double>& weights,
                              uint64_t seed);

}  // namespace fettle
