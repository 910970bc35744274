// Defines DownloadProgress, which shows the progress of a download.
#pragma once

#include <cstdint>
#include <string>

#include "base/seconds_since.h"

namespace fettle {

// Shows one live line on a terminal; otherwise prints a line every 30 seconds. Also prints a line at the start, and one
// at the end if this process fetched something.
class DownloadProgress {
 public:
  explicit DownloadProgress(std::string title) : title_(std::move(title)) {}

  void start(size_t files, int64_t bytes);
  // Counts a file that is complete. `fetched` is false when another process fetched it.
  void add(int64_t bytes, bool fetched);
  // Shows the progress. `partial` is the number of bytes that the unfinished files have so far.
  void show(int64_t partial);
  // Prints once that another process fetches `file` and that this process only waits for it.
  void say_waiting(const std::string& file);
  void finish();

 private:
  std::string title_;
  int64_t all_ = 0, done_ = 0, fetched_ = 0, before_ = -1;
  int64_t counted_ = 0;  // the bytes at the last call of count_progress()
  bool waiting_said_ = false;
  Clock::time_point begun_ = Clock::now(), shown_ = Clock::now(), said_ = Clock::now();
};

}  // namespace fettle
