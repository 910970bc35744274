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

InterruptScope::InterruptScope() {
  caught = 0;
  std::signal(SIGINT, remember);
  std::signal(SIGTERM, remember);
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int InterruptScope::signal() {
  return caught;
}

}  // namespace fettle
