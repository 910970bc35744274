#include "step/state/load_meter.h"

#include "base/log.h"
#include "base/progress.h"

namespace fettle {
namespace {

constexpr double kQuick = 2;          // seconds; a shorter load leaves no line
constexpr double kLiveSeconds = 0.2;  // seconds between two live lines

}  // namespace

std::string LoadProgressText::after(int64_t bytes, double seconds) {
  done_ += bytes;
  const int64_t quarter = total_ > 0 ? 4 * done_ / total_ : 4;
  const bool due = live_ ? seconds - shown_ >= kLiveSeconds : seconds >= kQuick && quarter > quarter_ && quarter < 4;
  if (!due) return "";
  shown_ = seconds;
  quarter_ = quarter;
  return fmt::format("loading weights: {:.1f} of {:.1f} GB, {:.2f} GB/s", static_cast<double>(done_) / 1e9,
                     static_cast<double>(total_) / 1e9, static_cast<double>(done_) / 1e9 / seconds);
}

std::string LoadProgressText::at_end(double seconds) const {
  if (seconds < kQuick) return "";
  return fmt::format("loaded {:.1f} GB of weights in {:.1f} s, {:.2f} GB/s", static_cast<double>(done_) / 1e9, seconds,
                     static_cast<double>(done_) / 1e9 / seconds);
}

LoadMeter::LoadMeter(int64_t total) : text_(total, stderr_is_terminal()), start_(Clock::now()) {}

double LoadMeter::seconds() const {
  return seconds_since(start_);
}

void LoadMeter::add(int64_t bytes) {
  count_progress();
  const std::lock_guard lock(mutex_);
  const std::string line = text_.after(bytes, seconds());
  if (line.empty()) return;
  if (stderr_is_terminal())
    live_line(line);
  else
    info("{}", line);
}

void LoadMeter::finish() {
  if (const std::string line = text_.at_end(seconds()); !line.empty()) info("{}", line);
}

}  // namespace fettle
