// Defines logging: progress and messages go to stderr, results to stdout.
#pragma once

#include <fmt/format.h>

#include <string>

namespace fettle {

enum class LogLevel { kQuiet, kInfo, kDebug };

void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, const std::string& text);  // writes one line to stderr, clearing a live line first
// Replaces the live line at the bottom of a terminal; prints nothing when stderr is not one.
void live_line(const std::string& text);
bool stderr_is_terminal();

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kQuiet, "warning: " + fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() == LogLevel::kDebug) log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fettle
