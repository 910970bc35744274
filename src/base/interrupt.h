// Defines InterruptScope, which catches SIGINT, SIGTERM and SIGHUP: training finishes its step, saves a checkpoint and
// stops.
#pragma once

#include <string_view>

namespace fettle {

// While a scope is alive, the first SIGINT, SIGTERM or SIGHUP is recorded and a second one ends the process at once.
// If SIGHUP was ignored before (nohup), it stays ignored. After SIGHUP, writes to a closed pipe do not end the process.
// Scopes may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

  // Returns the signal that was recorded, or 0. The process then exits with code 128 + signal.
  static int signal();
  // Throws an Error with exit code 128 + signal when a scope is alive and a signal was recorded. The message is
  // "interrupted while {doing}".
  static void check(std::string_view doing);

 private:
  using Handler = void (*)(int);
  Handler interrupt_before_, terminate_before_, hang_up_before_;
};

}  // namespace fettle
