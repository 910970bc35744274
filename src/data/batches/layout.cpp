#include "data/batches/layout.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "base/error.h"

namespace fettle {
namespace {

// The fixed cost of a micro-batch, which is the cost of reading the weights. The unit is one position on one device.
constexpr int64_t kMicroBatchCost = 32;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 1024;
constexpr int64_t kLeastGain = 100;  // a further shape must lower the total cost by more than 1 % (100 / kLeastGain)

// Keeps the number of free positions of each line. A tree of maxima finds the first line with enough free positions.
class OpenLines {
 public:
  OpenLines(int64_t lines, int64_t length)
      : leaves_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lines)))),
        length_(length),
        room_(static_cast<size_t>(2 * leaves_), 0) {
    std::fill_n(room_.begin() + leaves_, lines, length);
    for (int64_t node = leaves_ - 1; node > 0; --node) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
  }

  // Places `count` sequences from `first` on. If one of them does not fit, places none and returns false.
  bool place(const std::vector<int64_t>& lengths, int64_t first, int64_t count, std::vector<Place>& places) {
    for (int64_t s = first; s < first + count; ++s) {
      if (room_[1] < lengths[s]) {
        for (int64_t placed = first; placed < s; ++placed) take(places[placed].line, -lengths[placed]);
        return false;
      }
      int64_t node = 1;
      while (node < leaves_) node = 2 * node + (room_[2 * node] >= lengths[s] ? 0 : 1);
      places[s].line = node - leaves_;
      places[s].start = length_ - room_[node];
      take(places[s].line, lengths[s]);
    }
    return true;
  }

 private:
  void take(int64_t line, int64_t length) {
    int64_t node = line + leaves_;
    room_[node] -= length;
    while (node /= 2) room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
  }

  int64_t leaves_, length_;
  std::vector<int64_t> room_;  // the maximum below each node: node 1 is the root, 2n and 2n + 1 are below node n
};

int64_t rounded_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// Returns how many micro-batches of `lines` lines are enough for any step whose sequences each fit into one line.
int64_t enough_micro_batches(const BatchSpec& spec, int64_t lines) {
  if (spec.lines != Lines::kRegrouped) return spec.micro_batches;
  const int64_t groups = std::max<int64_t>(1, lines / sequences_per_group(spec.grouping));
  return (spec.groups_per_step() + groups - 1) / groups;
}

// Returns the shapes to choose from, sorted by length and then by number of lines. There are up to eight lengths from
// one power of two to the next.
std::vector<BatchShape> candidates(const BatchSpec& spec, int64_t longest, int64_t most) {
  std::set<int64_t> lengths{most};
  for (int64_t octave = 8; octave <= most; octave *= 2)
    for (int64_t eighth = 8; eighth < 16; ++eighth) {
      const int64_t even = octave >= 512 ? 64 : octave >= 128 ? 32 : 8;
      const int64_t length = rounded_up(octave * eighth / 8, std::lcm(even, spec.multiple));
      if (length <= most) lengths.insert(length);
    }
  lengths.insert(std::min(most, rounded_up(longest, std::lcm<int64_t>(longest > 256 ? 32 : 8, spec.multiple))));
  std::vector<BatchShape> out;
  const int64_t devices = spec.devices_for(spec.sequences), each = spec.sequences / devices;
  const int64_t useful = spec.lines == Lines::kRegrouped ? spec.micro_batches * spec.sequences : spec.sequences;
  for (const int64_t length : lengths) {
    std::set<int64_t> counts{each};
    for (int64_t power = 1; power * length <= each * most; power *= 2) counts.insert({power, power + power / 2});
    for (const int64_t count : counts)
      if (count * length <= each * most && count * devices <= useful)
        out.push_back({.micro_batches = enough_micro_batches(spec, count * devices),
                       .lines = count * devices,
                       .length = length,
                       .sequences = spec.micro_batches * spec.sequences,
                       .counted = spec.lines == Lines::kRegrouped});
  }
  return out;
}

// Returns whether every step whose sequences have at most `longest` tokens fits into the shape.
bool holds_all(const BatchShape& shape, const BatchSpec& spec, int64_t longest) {
  const int64_t lines = spec.lines == Lines::kRegrouped ? sequences_per_group(spec.grouping) : spec.sequences;
  return shape.length >= longest && shape.lines >= lines;
}

}  // namespace

BatchShape padded_shape(const BatchSpec& spec, int64_t length) {
  return {.micro_batches = spec.micro_batches,
          .lines = spec.sequences,
          .length = length,
          .sequences = spec.micro_batches * spec.sequences};
}

BatchShape fullest_shape(const BatchSpec& spec) {
  return padded_shape(spec, spec.longest());
}

int64_t positions_per_device(const BatchShape& shape, const BatchSpec& spec) {
  return shape.lines / spec.devices_for(shape.lines) * shape.length;
}

std::optional<LineLayout> lay_out(const std::vector<int64_t>& lengths, const BatchShape& shape, const BatchSpec& spec) {
  const int64_t each = sequences_per_group(spec.grouping), groups = static_cast<int64_t>(lengths.size()) / each;
  const bool regroups = spec.lines == Lines::kRegrouped;
  std::vector<int64_t> longest(static_cast<size_t>(groups)), order(longest.size());
  for (int64_t g = 0; g < groups; ++g) {
    longest[g] = *std::max_element(lengths.begin() + g * each, lengths.begin() + (g + 1) * each);
    if (longest[g] > shape.length) return std::nullopt;
  }
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return longest[a] > longest[b]; });
  LineLayout out{.places = std::vector<Place>(lengths.size())};
  if (regroups && each == 1) {  // sequences that are not grouped may use any line of any micro-batch
    OpenLines all(shape.micro_batches * shape.lines, shape.length);
    for (const int64_t s : order) {
      if (!all.place(lengths, s, 1, out.places)) return std::nullopt;
      Place& place = out.places[s];
      place.micro_batch = place.line / shape.lines;
      place.line %= shape.lines;
      out.used = std::max(out.used, place.micro_batch + 1);
    }
    out.used = std::max<int64_t>(1, out.used);
    return out;
  }
  std::vector<OpenLines> open(regroups ? 0 : static_cast<size_t>(shape.micro_batches), {shape.lines, shape.length});
  for (const int64_t group : order) {
    size_t at = regroups ? 0 : static_cast<size_t>(group * each / spec.sequences);
    const size_t last = regroups ? open.size() : at + 1;
    while (at < last && !open[at].place(lengths, group * each, each, out.places)) ++at;
    if (at == last) {
      if (!regroups || static_cast<int64_t>(open.size()) == shape.micro_batches) return std::nullopt;
      open.emplace_back(shape.lines, shape.length);
      if (!open.back().place(lengths, group * each, each, out.places)) return std::nullopt;
    }
    for (int64_t s = group * each; s < (group + 1) * each; ++s) out.places[s].micro_batch = static_cast<int64_t>(at);
  }
  out.used = regroups ? std::max<int64_t>(1, static_cast<int64_t>(open.size())) : shape.micro_batches;
  return out;
}

int64_t layout_cost(const LineLayout& layout, const BatchShape& shape, const BatchSpec& spec) {
  return (layout.used + spec.stages - 1) * (positions_per_device(shape, spec) + kMicroBatchCost);
}

std::vector<BatchShape> choose_shapes(const std::vector<std::vector<int64_t>>& samples, const BatchSpec& spec,
                                      int64_t longest, int64_t most) {
  const std::vector<BatchShape> all = candidates(spec, longest, most);
  std::vector<std::vector<int64_t>> costs;  // [shape][sample]
  for (const BatchShape& shape : all) {
    costs.emplace_back();
    for (const std::vector<int64_t>& lengths : samples) {
      const std::optional<LineLayout> layout = lay_out(lengths, shape, spec);
      costs.back().push_back(layout ? layout_cost(*layout, shape, spec) : kNever);
    }
  }
  // Returns, for each sample, the lowest cost with one of the chosen shapes other than chosen[left_out].
  auto best_without = [&](const std::vector<size_t>& chosen, size_t left_out) {
    std::vector<int64_t> best(samples.size(), kNever);
    for (size_t k = 0; k < chosen.size(); ++k)
      for (size_t i = 0; k != left_out && i < best.size(); ++i) best[i] = std::min(best[i], costs[chosen[k]][i]);
    return best;
  };
  auto sum_with = [&](const std::vector<int64_t>& best, size_t shape) {
    int64_t sum = 0;
    for (size_t i = 0; i < best.size(); ++i) sum += std::min(best[i], costs[shape][i]);
    return sum;
  };
  // Returns the index of the shape that gives the smallest sum of costs when it is added; `found`, if no other shape
  // gives a smaller sum than this one. If `sure` is true, considers only the shapes into which every step fits.
  auto best_addition = [&](const std::vector<int64_t>& best, bool sure, size_t found) {
    for (size_t shape = 0; shape < all.size(); ++shape)
      if ((!sure || holds_all(all[shape], spec, longest)) &&
          (found == all.size() || sum_with(best, shape) < sum_with(best, found)))
        found = shape;
    internal_check(found < all.size(), "choose_shapes: no shape holds rows of {} tokens", longest);
    return found;
  };
  const size_t none = kMostShapes;
  std::vector<size_t> chosen{best_addition(best_without({}, none), true, all.size())};
  while (chosen.size() < kMostShapes) {
    const std::vector<int64_t> best = best_without(chosen, none);
    const int64_t before = std::accumulate(best.begin(), best.end(), int64_t{0});
    const size_t next = best_addition(best, false, all.size());
    if (before - sum_with(best, next) <= before / kLeastGain) break;
    chosen.push_back(next);
  }
  // Each shape was chosen before the later shapes were known. So each is chosen once more, with the other shapes fixed.
  for (size_t k = 0; k < chosen.size(); ++k) {
    bool sure = true;
    for (size_t other = 0; other < chosen.size(); ++other)
      if (other != k && holds_all(all[chosen[other]], spec, longest)) sure = false;
    chosen[k] = best_addition(best_without(chosen, k), sure, chosen[k]);
  }
  std::vector<BatchShape> out;
  for (const size_t shape : std::set(chosen.begin(), chosen.end())) out.push_back(all[shape]);
  return out;
}

}  // namespace fettle
