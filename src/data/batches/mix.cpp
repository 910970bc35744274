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
  const bool under = mix == Mix::kInterleaveUnder, once = mix == Mix::kInterleaveOnce;
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
    const auto [least, most] = std::ranges::minmax(sizes);
    for (int64_t round = 0; round < (under ? least : most); ++round)
      for (size_t set = 0; set < sizes.size(); ++set)
        if (!once || round < sizes[set]) take(set);
    return order;
  }
  std::vector<double> left = weights, bounds(weights.size());
  std::inclusive_scan(left.begin(), left.end(), bounds.begin());
  size_t used_up = 0;
  for (uint64_t turn = 0; used_up < (under ? 1 : sizes.size()); ++turn) {
    const double drawn = uniform(mix_bits(seed, kMixStream), turn);
    const auto bound = std::upper_bound(bounds.begin(), bounds.end() - 1, drawn * bounds.back());
    const auto set = static_cast<size_t>(bound - bounds.begin());
    take(set);
    if (at[set] != sizes[set]) continue;
    ++used_up;
    if (once) left[set] = 0;
    std::inclusive_scan(left.begin(), left.end(), bounds.begin());
  }
  return order;
}

}  // namespace fettle
