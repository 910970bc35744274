// Defines InterruptScope, which catches the signals that ask a process to end, so that training can finish its step,
// save a checkpoint and stop. The signals are SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. Also defines
// InterruptNotice, which answers the signal at once.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <string_view>

namespace fettle {

// Makes the signals end the process outside of an InterruptScope, too, if its process id is 1. Linux ignores them
// otherwise in such a process, which is the first one of a container. main() calls this once.
void end_on_signals();

// While a scope is alive, the signals are recorded. A second signal of the same kind ends the process,
// except within a second after the first: it then counts as the same signal, delivered twice. If both were typed on the
// terminal (Ctrl-C), the second one always ends the process. If SIGHUP, SIGUSR1 or SIGUSR2 was ignored before (nohup,
// trap), it stays ignored. After SIGHUP, and after any signal while there is an InterruptNotice, writes to a closed
// pipe do not end the process. Scopes may be nested.
class InterruptScope {
 public:
  static constexpr size_t kSignalCount = 5;  // number of signals

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
  std::array<struct sigaction, kSignalCount> before_ = {};
};

// While a notice is alive, a signal that an InterruptScope records also prints the notice's text to stderr, at once.
// With LogLevel::kQuiet, nothing is printed. Only one notice may be alive.
class InterruptNotice {
 public:
  InterruptNotice();
  InterruptNotice(const InterruptNotice&) = delete;
  ~InterruptNotice();
  // `text` must be a literal: the signal handler may still read an earlier text.
  void set(const char* text);
};

}  // namespace fettle
