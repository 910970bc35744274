// Defines InterruptScope, which catches SIGINT, SIGTERM and SIGHUP, so that training can finish its step, save a
// checkpoint and stop.
#pragma once

#include <string_view>

namespace fettle {

// While a scope is alive, SIGINT, SIGTERM and SIGHUP are recorded. A second signal of the same kind ends the process.
// If SIGHUP was ignored before (nohup), it stays ignored. After SIGHUP, writes to a closed pipe do not end the process.
// Scopes may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

  // Returns the signal that was recorded last, or 0. A process that ends because of this signal exits with code 128 +
  // signal.
  static int signal();
  // Throws an Error with exit code 128 + signal when a scope is alive and a signal was recorded. The message is
  // "interrupted while {doing}".
  static void check(std::string_view doing);

 private:
  using Handler = void (*)(int);
  Handler interrupt_before_, terminate_before_, hang_up_before_;
};

}  // namespace fettle
