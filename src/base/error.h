// Defines the types of errors. The type tells who can fix the error: the user, Fettle's developers, or whoever
// maintains the machine.
//
// main() turns an error into a message and an exit code. In a run of several processes, Fate
// (runtime/rendezvous/fate.h) also ends the other processes, with the same exit code. A message says where the fault is
// (file:line, key or op), what was found, what was wanted, and what the user can do. Users rely on the exit codes
// (docs/errors.md).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace fettle {

enum class ExitCode : int { kOk = 0, kInternal = 1, kUser = 2, kDoesNotFit = 3, kDevice = 4 };

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Something in the user's recipe, data, model files, command line or environment is wrong. Exit 2.
class UserError : public Error {
 public:
  template <typename... Args>
  explicit UserError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::kUser, fmt::format(format, std::forward<Args>(args)...)) {}
};

// The run is valid but too large for the device, the host or the disk. Exit 3.
class DoesNotFit : public Error {
 public:
  template <typename... Args>
  explicit DoesNotFit(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::kDoesNotFit, fmt::format(format, std::forward<Args>(args)...)) {}
};

// Fettle has a bug. Exit 1; main() adds "please report".
class InternalError : public Error {
 public:
  template <typename... Args>
  explicit InternalError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::kInternal, fmt::format(format, std::forward<Args>(args)...)) {}
};

// The plugin or the device is missing or failed. After a failed PJRT call, the message has the call's name and error
// code. Exit 4.
class DeviceError : public Error {
 public:
  template <typename... Args>
  explicit DeviceError(fmt::format_string<Args...> format, Args&&... args)
      : Error(ExitCode::kDevice, fmt::format(format, std::forward<Args>(args)...)) {}
};

// Throws InternalError with the formatted text if `condition` is false.
template <typename... Args>
void internal_check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InternalError(format, std::forward<Args>(args)...);
}

}  // namespace fettle
