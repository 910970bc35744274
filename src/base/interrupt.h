// Defines the catching of SIGINT and SIGTERM: the step at hand ends, a checkpoint is saved, the run stops.
#pragma once

namespace fettle {

// While alive, the first SIGINT or SIGTERM is remembered; a second one ends the process at once. Scopes may be nested.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

  // The signal that came, or 0. The exit code for it is 128 + signal.
  static int signal();

 private:
  using Handler = void (*)(int);
  Handler interrupt_before_, terminate_before_;
};

}  // namespace fettle
