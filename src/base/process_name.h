// Defines ProcessName, which names a process uniquely among machines that share a folder. Unfinished files carry it.
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
  // Reads the output of text(); returns nothing for any other text.
  static std::optional<ProcessName> parse(std::string_view text);
  std::string text() const;  // "1a2b3c4d-1234": machine and process
  // True when the process ran on this machine and has ended. Always false for processes of other machines.
  bool is_gone() const;
  bool operator==(const ProcessName&) const = default;
};

}  // namespace fettle
