#include "hub/download_progress.h"

#include <algorithm>

#include "base/log.h"
#include "base/progress.h"
#include "base/size_text.h"

namespace fettle {

void DownloadProgress::start(size_t files, int64_t bytes) {
  all_ = bytes;
  info("downloading {}: {} file{}, {}", title_, files, files == 1 ? "" : "s", size_text(bytes));
}

void DownloadProgress::add(int64_t bytes, bool fetched) {
  done_ += bytes;
  if (fetched) fetched_ += bytes;
}

void DownloadProgress::show(int64_t partial) {
  const int64_t now = std::min(all_, done_ + partial);
  if (before_ < 0) before_ = now;  // the speed does not count bytes that earlier downloads fetched
  if (now != counted_) {           // bytes that are fetched again count, too
    counted_ = now;
    count_progress();
  }
  const bool terminal = stderr_is_terminal();
  if (seconds_since(shown_) < 0.5 || (!terminal && seconds_since(said_) < 30)) return;
  shown_ = said_ = Clock::now();
  const double speed = static_cast<double>(now - before_) / std::max(1e-3, seconds_since(begun_));
  const int64_t left = speed > 1 ? static_cast<int64_t>(static_cast<double>(all_ - now) / speed) : -1;
  const std::string line =
      fmt::format("{}: {} of {} ({:.0f}%) | {}/s | {}", title_, size_text(now), size_text(all_),
                  all_ == 0 ? 100.0 : 100.0 * static_cast<double>(now) / static_cast<double>(all_),
                  size_text(static_cast<int64_t>(speed), 1),
                  left < 0 ? "waiting" : fmt::format("{}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60));
  if (terminal) {
    live_line(line);
  } else {
    info("{}", line);
  }
}

void DownloadProgress::say_waiting(const std::string& file) {
  if (waiting_said_) return;
  waiting_said_ = true;
  info("{}: another process is downloading {}; waiting for it", title_, file);
}

void DownloadProgress::finish() {
  if (fetched_ > 0 || done_ == 0)
    info("downloaded {}: {} in {:.1f} s", title_, size_text(fetched_), seconds_since(begun_));
}

}  // namespace fettle
