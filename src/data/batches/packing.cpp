#include "data/batches/packing.h"

#include <algorithm>
#include <map>

namespace fettle {
namespace {

constexpr int64_t kMostSearched = 20'000;  // combinations tried for one sequence

// The documents that are not yet packed, sorted by length.
class Stock {
 public:
  explicit Stock(const std::vector<int64_t>& lengths) {
    for (auto i = static_cast<int64_t>(lengths.size()) - 1; i >= 0; --i) by_length_[lengths[i]].push_back(i);
    for (const auto& item : by_length_) present_.push_back(item.first);
  }
  bool empty() const { return present_.empty(); }
  int64_t shortest() const { return present_.front(); }
  // Returns the longest length that is at most `room` (free positions), or 0 when there is none.
  int64_t longest(int64_t room) const {
    const auto above = std::upper_bound(present_.begin(), present_.end(), room);
    return above == present_.begin() ? 0 : *(above - 1);
  }
  int64_t take(int64_t length) {
    auto found = by_length_.find(length);
    const int64_t index = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) {
      by_length_.erase(found);
      present_.erase(std::lower_bound(present_.begin(), present_.end(), length));
    }
    return index;
  }

  // Returns the length in stock that is nearest to `wanted`.
  int64_t nearest(int64_t wanted) const {
    const auto above = std::lower_bound(present_.begin(), present_.end(), wanted);
    if (above == present_.end()) return present_.back();
    if (above == present_.begin() || *above - wanted < wanted - *(above - 1)) return *above;
    return *(above - 1);
  }

  // Returns up to three lengths. Their sum fits into `room`, and is the largest such sum that the search finds. Among
  // equal sums, takes the fewest lengths. The search begins with lengths near room / 2 (for two documents) or room / 3
  // (for three). So it prefers documents of similar length, and short documents remain to fill gaps in later sequences.
  std::vector<int64_t> best_fill(int64_t room) const {
    std::vector<int64_t> best;
    int64_t most = 0, searched = 0;
    auto offer = [&](std::vector<int64_t> choice) {
      ++searched;
      int64_t sum = 0;
      for (int64_t length : choice) sum += length;
      if (sum > most && sum <= room && enough(choice)) {
        most = sum;
        best = std::move(choice);
      }
      return most < room && searched < kMostSearched;
    };
    if (!offer({longest(room)})) return best;
    outward(room / 2, kMostSearched, [&](int64_t a) {
      const int64_t b = longest(room - a);
      return b == 0 || offer({a, b});
    });
    if (most == room) return best;
    outward(room / 3, kMostSearched, [&](int64_t a) {
      outward((room - a) / 2, 40, [&](int64_t b) {
        const int64_t c = longest(room - a - b);
        return c == 0 || offer({a, b, c});
      });
      return most < room && searched < kMostSearched;
    });
    return best;
  }

 private:
  bool enough(const std::vector<int64_t>& choice) const {
    return std::all_of(choice.begin(), choice.end(), [&](int64_t length) {
      return std::count(choice.begin(), choice.end(), length) <=
             static_cast<std::ptrdiff_t>(by_length_.at(length).size());
    });
  }

  // Calls `visit` with up to `count` lengths until `visit` returns false. Begins with the length that is nearest to
  // `wanted`, and continues with lengths that are further away.
  template <typename Visit>
  void outward(int64_t wanted, int64_t count, Visit visit) const {
    auto up = std::lower_bound(present_.begin(), present_.end(), wanted);
    auto down = up;
    for (; count > 0 && (up != present_.end() || down != present_.begin()); --count) {
      const bool take_up = down == present_.begin() || (up != present_.end() && *up - wanted <= wanted - *(down - 1));
      if (!visit(take_up ? *up++ : *--down)) return;
    }
  }

  std::map<int64_t, std::vector<int64_t>> by_length_;
  std::vector<int64_t> present_;
};

}  // namespace

int64_t capacity_of(const BatchSpec& spec) {
  return std::min(spec.lengths.back(), (spec.max_length + 7) / 8 * 8);
}

std::vector<std::vector<int64_t>> pack_lengths(const std::vector<int64_t>& lengths, int64_t capacity) {
  Stock stock(lengths);
  std::vector<std::vector<int64_t>> sequences;
  while (!stock.empty()) {
    int64_t room = capacity;
    std::vector<int64_t> sequence;
    while (!stock.empty() && stock.shortest() <= room) {
      const int64_t longest = stock.longest(room);
      const int64_t needed = (room + longest - 1) / longest;  // the smallest number of documents that can fill `room`
      if (sequence.empty() || needed > 3) {
        const int64_t length = sequence.empty() ? longest : std::min(stock.nearest(room / needed), longest);
        sequence.push_back(stock.take(length));
        room -= length;
        continue;
      }
      for (int64_t length : stock.best_fill(room)) {
        sequence.push_back(stock.take(length));
        room -= length;
      }
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace fettle
