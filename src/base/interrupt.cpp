#include "base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace fettle {
namespace {

volatile std::sig_atomic_t caught = 0;
std::atomic<int> scopes = 0;
std::atomic<const char*> notice = nullptr;  // the text to print on a signal; null: none
std::atomic<bool> on_terminal = false;
std::atomic<bool> finishing = false;  // an InterruptNotice is alive, so the process still has work to finish
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void put(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// A signal handler, so it may only call functions that POSIX lists as async-signal-safe.
void remember(int signal) {
  const int error = errno;
  caught = signal;
  // Ctrl-C and a hang-up also end the readers of our output; a run still has a checkpoint to save.
  if (signal == SIGHUP || finishing) std::signal(SIGPIPE, SIG_IGN);
  std::signal(signal, SIG_DFL);
  if (const char* text = notice; text != nullptr) {
    if (on_terminal) put("\r\033[K");  // removes the progress line
    put(text);
    put("\n");
  }
  errno = error;
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

InterruptNotice::InterruptNotice() {
  finishing = true;
}

InterruptNotice::~InterruptNotice() {
  finishing = false;
  notice = nullptr;
}

void InterruptNotice::set(const char* text) {
  on_terminal = stderr_is_terminal();
  notice = log_level() == LogLevel::kQuiet ? nullptr : text;
}

void InterruptScope::check(std::string_view doing) {
  if (scopes > 0 && caught != 0)
    throw Error(static_cast<ExitCode>(128 + caught), fmt::format("interrupted while {}", doing));
}

}  // namespace fettle
