// Defines ProgressLine, which shows how far long work is, and count_progress and progress_count, which let the other
// processes of a run tell long work from a hang.
#pragma once

#include <cstdint>
#include <string>

#include "base/seconds_since.h"

namespace fettle {

// Call this when a part of long work is done: bytes were downloaded or read, or a row was tokenised. Do not call it
// from threads that work beside the training step, because it would hide a step that hangs. Thread-safe.
void count_progress();
// Returns how often this process has called count_progress().
int64_t progress_count();

// On a terminal, a line that replaces itself, at most twice a second; elsewhere, a line each minute. Not thread-safe.
class ProgressLine {
 public:
  // Shows text(), a std::string, if it is time for it.
  template <typename Text>
  void show(const Text& text) {
    if (is_time()) print(text());
  }

 private:
  bool is_time();
  void print(const std::string& text);

  Clock::time_point shown_ = Clock::now(), told_ = shown_;
};

}  // namespace fettle
