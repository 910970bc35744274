#include "base/interrupt.h"

#include <csignal>

namespace fettle {
namespace {

volatile std::sig_atomic_t caught = 0;

void remember(int signal) {
  caught = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

// A signal caught by the scope around this one has set its handler back already, and stays caught.
InterruptScope::InterruptScope() {
  interrupt_before_ = std::signal(SIGINT, remember);
  terminate_before_ = std::signal(SIGTERM, remember);
  if (interrupt_before_ != remember && terminate_before_ != remember) caught = 0;
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, caught == SIGINT ? SIG_DFL : interrupt_before_);
  std::signal(SIGTERM, caught == SIGTERM ? SIG_DFL : terminate_before_);
}

int InterruptScope::signal() {
  return caught;
}

}  // namespace fettle
