#include "data/store/read_progress.h"

#include <algorithm>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/size_text.h"

namespace fettle {

void ReadProgress::add(int64_t bytes) {
  InterruptScope::check(doing_);
  count_progress();
  done_ = std::min(all_, done_ + bytes);
  if (seconds_since(shown_) < 0.5) return;
  shown_ = Clock::now();
  const std::string line = fmt::format("{}: {} of {}", title_, size_text(done_), size_text(all_));
  live_line(line);
  if (stderr_is_terminal() || seconds_since(told_) < 60) return;
  told_ = shown_;
  info("{}", line);
}

}  // namespace fettle
