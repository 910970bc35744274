// Defines DownloadProgress, which shows how far a download is.
#pragma once

#include <cstdint>
#include <string>

#include "base/seconds_since.h"

namespace fettle {

// On a terminal one live line; else a line each half minute. Says what begins and what has been fetched.
class DownloadProgress {
 public:
  explicit DownloadProgress(std::string title) : title_(std::move(title)) {}

  void start(size_t files, int64_t bytes);
  // A file is there. `fetched` is false when another process fetched it.
  void add(int64_t bytes, bool fetched);
  // `partial` is the number of bytes of the files on their way.
  void show(int64_t partial);
  // Another process fetches `file`, and nothing is left to do here meanwhile. Said once.
  void say_waiting(const std::string& file);
  void finish();

 private:
  std::string title_;
  int64_t all_ = 0, done_ = 0, fetched_ = 0, before_ = -1;
  bool waiting_said_ = false;
  Clock::time_point begun_ = Clock::now(), shown_ = Clock::now(), said_ = Clock::now();
};

}  // namespace fettle
