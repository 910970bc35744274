// Defines logging. Progress and messages go to stderr; results go to stdout.
#pragma once

#include <fmt/format.h>

#include <string>

namespace fettle {

enum class LogLevel { kQuiet, kInfo, kDebug };

void set_log_level(LogLevel level);
LogLevel log_level();
// Writes a line to stderr if the log level includes `level`. The line takes the place of the progress line.
void log_line(LogLevel level, const std::string& text);
// Replaces the progress line at the bottom of a terminal. Prints nothing with kQuiet or when stderr is not a terminal.
void live_line(const std::string& text);
bool stderr_is_terminal();

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
// Warnings are printed at every log level.
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kQuiet, "warning: " + fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() == LogLevel::kDebug) log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace fettle
