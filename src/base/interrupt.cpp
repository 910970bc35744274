#include "base/interrupt.h"

#include <atomic>
#include <csignal>

#include "base/error.h"

namespace fettle {
namespace {

volatile std::sig_atomic_t caught = 0;
std::atomic<int> scopes = 0;

void remember(int signal) {
  caught = signal;
  if (signal == SIGHUP) std::signal(SIGPIPE, SIG_IGN);  // readers of our output may have ended too
  std::signal(signal, SIG_DFL);
}

}  // namespace

// Forgets an earlier signal if no outer scope is alive. An outer scope is alive if the previous handler of at least one
// of the three signals is remember(). It is not enough to check one signal: remember() removes itself as the handler of
// the signal that it records, and an ignored SIGHUP stays ignored.
InterruptScope::InterruptScope() {
  ++scopes;
  interrupt_before_ = std::signal(SIGINT, remember);
  terminate_before_ = std::signal(SIGTERM, remember);
  hang_up_before_ = std::signal(SIGHUP, remember);
  if (hang_up_before_ == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  if (interrupt_before_ != remember && terminate_before_ != remember && hang_up_before_ != remember) caught = 0;
  if (caught != 0) std::signal(caught, SIG_DFL);  // a second signal of this kind ends the process
}

InterruptScope::~InterruptScope() {
  --scopes;
  std::signal(SIGINT, caught == SIGINT ? SIG_DFL : interrupt_before_);
  std::signal(SIGTERM, caught == SIGTERM ? SIG_DFL : terminate_before_);
  std::signal(SIGHUP, caught == SIGHUP ? SIG_DFL : hang_up_before_);
}

int InterruptScope::signal() {
  return caught;
}

void InterruptScope::check(std::string_view doing) {
  if (scopes > 0 && caught != 0)
    throw Error(static_cast<ExitCode>(128 + caught), fmt::format("interrupted while {}", doing));
}

}  // namespace fettle
