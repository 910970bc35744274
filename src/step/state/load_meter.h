// Defines LoadMeter, which shows progress while weights are read.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/seconds_since.h"

namespace fettle {

// Counts bytes and formats the progress line. The caller supplies the time.
class LoadProgressText {
 public:
  // If `live` is true, after() returns a line every 0.2 s; each line replaces the previous one on the terminal.
  // Otherwise, after() returns a line when 1/4, 2/4 and 3/4 of the bytes are loaded, but no line in the first 2 s.
  LoadProgressText(int64_t total, bool live) : total_(total), live_(live) {}
  // Counts `bytes` more, `seconds` after the start, and returns the line to show; "" when there is nothing to show.
  std::string after(int64_t bytes, double seconds);
  // Returns the last line, "loaded 4.6 GB of weights in 3.1 s, 1.48 GB/s"; "" when the load took less than 2 s.
  std::string at_end(double seconds) const;

 private:
  int64_t total_, done_ = 0, quarter_ = 0;
  bool live_;
  double shown_ = 0;
};

// Shows the progress on stderr. Thread-safe.
class LoadMeter {
 public:
  explicit LoadMeter(int64_t total);
  void add(int64_t bytes);
  void finish();

 private:
  double seconds() const;
  std::mutex mutex_;
  LoadProgressText text_;
  Clock::time_point start_;
};

}  // namespace fettle
