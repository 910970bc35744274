// Defines LoadMeter: what is shown while weights are read.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace fettle {

// Counts bytes and says what to show after so many seconds. Without a clock of its own.
class LoadProgressText {
 public:
  // `live`: a line that is replaced often; else one each quarter, from 2 s on.
  LoadProgressText(int64_t total, bool live) : total_(total), live_(live) {}
  // The line to show after `bytes` more, `seconds` after the start; empty for none.
  std::string after(int64_t bytes, double seconds);
  // The last line: "loaded 4.6 GB of weights in 3.1 s (1.48 GB/s)"; empty when it took less than 2 s.
  std::string at_end(double seconds) const;

 private:
  int64_t total_, done_ = 0, quarter_ = 0;
  bool live_;
  double shown_ = 0;
};

// Shows it on stderr. Thread-safe.
class LoadMeter {
 public:
  explicit LoadMeter(int64_t total);
  void add(int64_t bytes);
  void finish();

 private:
  double seconds() const;
  std::mutex mutex_;
  LoadProgressText text_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fettle
