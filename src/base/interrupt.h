// Defines the catching of SIGINT and SIGTERM: the step at hand ends, a checkpoint is saved, the run stops.
#pragma once

#include <string_view>

namespace fettle {

// While alive, the first SIGINT or SIGTERM is remembered; a second one ends the process at once. Scopes may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

  // The signal that came, or 0. The exit code for it is 128 + signal.
  static int signal();
  // Throws an Error with that exit code when one came within a scope that is alive; `doing` ends the sentence
  // "interrupted while ...".
  static void check(std::string_view doing);

 private:
  using Handler = void (*)(int);
  Handler interrupt_before_, terminate_before_;
};

}  // namespace fettle
