// Defines ReadProgress, which shows progress while a large file of the data is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/seconds_since.h"

namespace fettle {

class ReadProgress {
 public:
  // `title` begins the line. `doing` is for InterruptScope::check and must outlive this object.
  ReadProgress(std::string title, int64_t bytes, std::string_view doing)
      : title_(std::move(title)), doing_(doing), all_(bytes) {}
  // Counts bytes that were read. Shows a line that replaces itself on a terminal, or a line each minute otherwise.
  // After a signal, throws the error of InterruptScope::check.
  void add(int64_t bytes);

 private:
  std::string title_;
  std::string_view doing_;
  int64_t all_, done_ = 0;
  Clock::time_point shown_ = Clock::now(), told_ = shown_;
};

}  // namespace fettle
