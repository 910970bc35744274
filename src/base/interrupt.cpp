#include "base/interrupt.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace fettle {
namespace {

// Launchers often deliver one signal twice: to the process group and to each process. A signal that comes this soon
// after the first one of its kind counts as the same signal, unless both were typed.
constexpr int64_t kSameSignalMs = 1000;

// Schedulers send SIGUSR1 or SIGUSR2 some time before they end a job, if the job asks for it (sbatch --signal).
constexpr int kSignals[InterruptScope::kSignalCount] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

volatile std::sig_atomic_t caught = 0;
std::array<std::atomic<int64_t>, NSIG> first_at = {};  // by signal: when it first came, in ms; 0: it has not
std::atomic<bool> typed = false;                       // Ctrl-C was typed on the terminal
std::atomic<int> scopes = 0;
std::atomic<const char*> notice = nullptr;  // the text to print on a signal; null: none
std::atomic<bool> on_terminal = false;
std::atomic<bool> finishing = false;  // an InterruptNotice is alive, so the process still has work to finish
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000 + 1;  // never 0
}

void put(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// The process with the id 1 of a container does not get the default action of a signal, so it exits instead.
void end_at_once(int signal) {
  if (getpid() == 1) _exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // ends the process when the signal handler returns
}

// A signal handler, so it may only call functions that POSIX lists as async-signal-safe.
void remember(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const int64_t now = milliseconds();
  std::atomic<int64_t>& first = first_at[static_cast<size_t>(signal)];
  // The kernel sends the signal of a key; launchers call kill().
  const bool by_key = signal == SIGINT && info->si_code == SI_KERNEL;
  const bool typed_twice = by_key && typed.exchange(true);
  if (first != 0) {
    if (typed_twice || now - first >= kSameSignalMs) end_at_once(signal);
    errno = error;
    return;
  }
  first = now;
  caught = signal;
  // Ctrl-C and a hang-up also end the readers of our output; a run still has a checkpoint to save.
  if (signal == SIGHUP || finishing) std::signal(SIGPIPE, SIG_IGN);
  if (const char* text = notice; text != nullptr) {
    if (on_terminal) put("\r\033[K");  // removes the progress line
    put(text);
    put("\n");
  }
  errno = error;
}

}  // namespace

void end_on_signals() {
  if (getpid() != 1) return;
  for (const int signal : kSignals)
    if (std::signal(signal, end_at_once) == SIG_IGN) std::signal(signal, SIG_IGN);
}

InterruptScope::InterruptScope() {
  if (++scopes == 1) {  // no outer scope is alive, so an earlier signal is forgotten
    caught = 0;
    typed = false;
    for (std::atomic<int64_t>& time : first_at) time = 0;
  }
  struct sigaction action {};
  action.sa_sigaction = remember;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (size_t i = 0; i < before_.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
    const bool may_be_ignored = kSignals[i] != SIGINT && kSignals[i] != SIGTERM;
    if (may_be_ignored && before_[i].sa_handler == SIG_IGN) std::signal(kSignals[i], SIG_IGN);
  }
}

InterruptScope::~InterruptScope() {
  --scopes;
  for (size_t i = 0; i < before_.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
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
