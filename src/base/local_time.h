// Defines LocalTime: a moment with the time zone in which it is shown. A run keeps one LocalTime from its start to its
// end, so that dates in its chat templates do not change at midnight or on another machine.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace fettle {

struct LocalTime {
  int64_t seconds = 0;       // since 1970-01-01 00:00 UTC
  int64_t offset = 0;        // the time zone, in seconds east of UTC
  std::string zone = "UTC";  // the time zone's short name

  static LocalTime now();
  static LocalTime at(std::time_t seconds);  // the time in this machine's zone
  // Returns year, month, day and so on. The result points into `zone`, so `zone` must outlive the result.
  std::tm parts() const;
  std::string text() const;  // "2026-11-22 18:32:02 +0100"

  bool operator==(const LocalTime&) const = default;
};

}  // namespace fettle
