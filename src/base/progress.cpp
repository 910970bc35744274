#include "base/progress.h"

#include <atomic>

#include "base/log.h"

namespace fettle {
namespace {

std::atomic<int64_t> progress_made = 0;

}  // namespace

void count_progress() {
  ++progress_made;
}

int64_t progress_count() {
  return progress_made;
}

bool ProgressLine::is_time() {
  if (seconds_since(shown_) < 0.5) return false;
  shown_ = Clock::now();
  return stderr_is_terminal() || seconds_since(told_) >= 60;
}

void ProgressLine::print(const std::string& text) {
  if (stderr_is_terminal()) return live_line(text);
  told_ = Clock::now();
  info("{}", text);
}

}  // namespace fettle
