// Defines mix_sets: in which order the rows of several data sets make one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

// Rows of the sets, set n's being numbered from the sum of the sizes before it. As Hugging Face's interleave_datasets:
// without `weights` the sets take turns, as long as each has a row left ("interleave_under") or until each was gone
// through ("interleave_over", in which shorter ones begin anew). With weights, each turn's set is drawn by them with
// `seed`, until one set is used up, or all are. Throws UserError when that would repeat rows more than 100 times over.
std::vector<int64_t> mix_sets(const std::vector<int64_t>& sizes, const std::string& strategy,
                              const std::vector<double>& weights, uint64_t seed);

}  // namespace fettle
