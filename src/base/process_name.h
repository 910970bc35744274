// Defines ProcessName: one process among those of all machines that may share a folder, for names of unfinished files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fettle {

struct ProcessName {
  uint32_t machine = 0;  // a hash of the host's name
  pid_t pid = 0;

  static ProcessName own();
  // What text() gave; nothing for any other text.
  static std::optional<ProcessName> parse(std::string_view text);
  std::string text() const;  // "1a2b3c4d-1234": the machine, the process
  // It was this machine's and has ended. Of another machine's processes nothing is known here.
  bool is_gone() const;
  bool operator==(const ProcessName&) const = default;
};

}  // namespace fettle
