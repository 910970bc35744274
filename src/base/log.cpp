#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace fettle {
namespace {
LogLevel current = LogLevel::kInfo;
std::mutex mutex;
bool live = false;
}  // namespace

void set_log_level(LogLevel level) {
  current = level;
}
LogLevel log_level() {
  return current;
}

bool stderr_is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

void log_line(LogLevel level, const std::string& text) {
  if (level > current) return;
  std::lock_guard lock(mutex);
  std::fprintf(stderr, "%s%s\n", live ? "\r\033[K" : "", text.c_str());
  live = false;
}

void live_line(const std::string& text) {
  if (!stderr_is_terminal() || current == LogLevel::kQuiet) return;
  std::lock_guard lock(mutex);
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const size_t most = known ? window.ws_col - 1u : text.size();  // a line that wraps cannot be replaced later
  std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(most), text.c_str());
  std::fflush(stderr);
  live = true;
}

}  // namespace fettle
