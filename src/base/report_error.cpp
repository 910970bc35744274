#include "base/report_error.h"

#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/log.h"

namespace fettle {

int report_error() {
  try {
    throw;
  } catch (const Error& error) {
    const bool ours = error.code() == ExitCode::kInternal;
    log_line(LogLevel::kQuiet, fmt::format("{}: {}", ours ? "internal error" : "error", error.what()));
    if (ours)
      log_line(LogLevel::kQuiet, "this is a bug in fettle " FETTLE_VERSION "; please report it with the recipe");
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    log_line(LogLevel::kQuiet, fmt::format("error: {}", file_error(error).what()));
    return static_cast<int>(ExitCode::kUser);
  } catch (const std::bad_alloc&) {
    log_line(LogLevel::kQuiet, "error: this machine has no free memory left");
    return static_cast<int>(ExitCode::kDoesNotFit);
  } catch (const std::exception& error) {
    log_line(LogLevel::kQuiet, fmt::format("internal error: {}; please report it with the recipe", error.what()));
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace fettle
