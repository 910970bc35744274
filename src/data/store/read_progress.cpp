#include "data/store/read_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "base/size_text.h"

namespace fettle {

void ReadProgress::add(int64_t bytes) {
  InterruptScope::check(doing_);
  count_progress();
  done_ = std::min(all_, done_ + bytes);
  line_.show([&] { return fmt::format("{}: {} of {}", title_, size_text(done_), size_text(all_)); });
}

}  // namespace fettle
