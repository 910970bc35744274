// Defines ReadProgress, which shows progress while a large file of the data is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace fettle {

class ReadProgress {
 public:
  // `title` begins the line. `doing` is for InterruptScope::check and must outlive this object.
  ReadProgress(std::string title, int64_t bytes, std::string_view doing)
      : title_(std::move(title)), doing_(doing), all_(bytes) {}
  // Counts bytes that were read, and shows a ProgressLine. After a signal, throws the error of InterruptScope::check.
  void add(int64_t bytes);

 private:
  std::string title_;
  std::string_view doing_;
  int64_t all_, done_ = 0;
  ProgressLine line_;
};

}  // namespace fettle
