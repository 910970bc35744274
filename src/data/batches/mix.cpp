#include "data/batches/mix.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace fettle {
namespace {

constexpr uint64_t kMixStream = (uint64_t{1} << 62) + 2;
constexpr int64_t kMostRepeats = 100;

}  // namespace

std::vector<int64_t> mix_sets(const std::vector<int64_t>& sizes, Mix mix, const std::vector<double>& weights,
                              uint64_t seed) {
  internal_check(weights.empty() || weights.size() == sizes.size(), "mix_sets: {} sets, but {} weights", sizes.size(),
                 weights.size());
  std::vector<int64_t> first(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), first.begin(), int64_t{0});
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const bool over = mix == Mix::kInterleaveOver;
  std::vector<int64_t> order, at(sizes.size());
  auto take = [&](size_t set) {
    order.push_back(first[set] + at[set] % sizes[set]);
    ++at[set];
    if (static_cast<int64_t>(order.size()) / kMostRepeats > all)
      throw UserError(
          "mix_strategy: interleave_over would repeat the {} rows until there are more than {}; set mix_strategy: "
          "interleave_under, or choose interleave_probs that are closer to the sizes of the sets",
          all, order.size());
  };
  if (weights.empty()) {
    const int64_t rounds =
        over ? *std::max_element(sizes.begin(), sizes.end()) : *std::min_element(sizes.begin(), sizes.end());
    for (int64_t round = 0; round < rounds; ++round)
      for (size_t set = 0; set < sizes.size(); ++set) take(set);
    return order;
  }
  std::vector<double> bounds(weights.size());
  std::inclusive_scan(weights.begin(), weights.end(), bounds.begin());
  size_t used_up = 0;
  for (uint64_t turn = 0; used_up < (over ? sizes.size() : 1); ++turn) {
    const double drawn = uniform(mix_bits(seed, kMixStream), turn);
    const auto bound = std::upper_bound(bounds.begin(), bounds.end() - 1, drawn * bounds.back());
    const auto set = static_cast<size_t>(bound - bounds.begin());
    take(set);
    used_up += at[set] == sizes[set];
  }
  return order;
}

}  // namespace fettle
