#include "data/batches/step_groups.h"

#include <algorithm>

#include "base/random.h"
#include "data/batches/order.h"

namespace fettle {
namespace {

// Numbers of random streams. The order of an epoch uses the epoch's number as its stream; this stream and that of
// packing (groups.cpp) have larger numbers than any epoch.
constexpr uint64_t kWindowStream = uint64_t{1} << 61;
constexpr int64_t kLargestWindow = 32;

}  // namespace

int64_t steps_per_epoch(const Groups& groups, const BatchSpec& spec) {
  return (groups.count() + spec.groups_per_step() - 1) / spec.groups_per_step();
}

int64_t StepGroups::group_at(int64_t epoch, int64_t i) const {
  return spec_.shuffle ? permuted_index(i, groups_.count(), spec_.seed, static_cast<uint64_t>(epoch)) : i;
}

// Returns the window of `step`, or nullopt when the step's rows are not chosen by length. A window takes the groups of
// a few steps, sorts them by length, cuts the sorted list into the same number of steps, and shuffles these steps. An
// epoch has at least four windows, so that small data sets do not give the same steps in every epoch.
std::optional<StepGroups::Window> StepGroups::window_of(int64_t step) const {
  const int64_t each = spec_.groups_per_step();
  const int64_t epoch = step / steps_per_epoch(groups_, spec_), in_epoch = step % steps_per_epoch(groups_, spec_);
  const int64_t full_steps = groups_.count() / each;
  const int64_t size = std::clamp<int64_t>(full_steps / 4, 1, kLargestWindow);
  const bool by_length = spec_.shuffle && spec_.like_length && !groups_.share_sequences() && size > 1;
  if (!by_length || in_epoch >= full_steps) return std::nullopt;
  const int64_t first = in_epoch / size * size;
  Window window{.first = epoch * steps_per_epoch(groups_, spec_) + first, .steps = std::min(size, full_steps - first)};
  for (int64_t i = first * each; i < (first + window.steps) * each; ++i) window.groups.push_back(group_at(epoch, i));
  std::stable_sort(window.groups.begin(), window.groups.end(),
                   [&](int64_t a, int64_t b) { return groups_.length(a) < groups_.length(b); });
  window.stream = mix_bits(kWindowStream + static_cast<uint64_t>(epoch), static_cast<uint64_t>(first));
  return window;
}

std::vector<int64_t> StepGroups::of(int64_t step) {
  const int64_t each = spec_.groups_per_step();
  if (!window_ || step < window_->first || step >= window_->first + window_->steps) window_ = window_of(step);
  if (window_) {
    const int64_t place = permuted_index(step - window_->first, window_->steps, spec_.seed, window_->stream);
    return {window_->groups.begin() + place * each, window_->groups.begin() + (place + 1) * each};
  }
  const int64_t epoch = step / steps_per_epoch(groups_, spec_), in_epoch = step % steps_per_epoch(groups_, spec_);
  std::vector<int64_t> chosen;
  for (int64_t i = in_epoch * each; i < std::min(groups_.count(), (in_epoch + 1) * each); ++i)
    chosen.push_back(group_at(epoch, i));
  return chosen;
}

}  // namespace fettle
