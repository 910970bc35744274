// Defines seconds_since, which measures elapsed time, and Phases, which prints the time of each part with --verbose.
#pragma once

#include <chrono>

#include "base/log.h"

namespace fettle {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Prints how long each part of a command takes. The first part begins when the object is made; each other part begins
// where the last one ended.
class Phases {
 public:
  // Ends a part. Prints its name, its time, and the time since the first part began.
  void done(const char* part) {
    debug("{}: {:.2f} s (after {:.2f} s)", part, seconds_since(part_), seconds_since(start_));
    part_ = Clock::now();
  }

 private:
  Clock::time_point start_ = Clock::now(), part_ = start_;
};

}  // namespace fettle
