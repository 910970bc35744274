#include "base/report_error.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "base/files/file_error.h"
#include "base/log.h"

namespace fettle {

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    const Error ours = file_error(error);
    return {ours.code(), ours.what()};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return {ExitCode::kInternal, error.what()};
    return {ExitCode::kDoesNotFit,
            "the system starts no more threads: raise the limit of processes (ulimit -u, or the container's)"};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kDoesNotFit, "the machine has no free memory left"};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, error.what()};
  }
}

int report_error() {
  const Failure failure = current_failure();
  const bool ours = failure.code == ExitCode::kInternal;
  log_line(LogLevel::kQuiet, fmt::format("{}: {}", ours ? "internal error" : "error", failure.text));
  if (ours) log_line(LogLevel::kQuiet, "this is a bug in fettle " FETTLE_VERSION "; please report it with the recipe");
  return static_cast<int>(failure.code);
}

}  // namespace fettle
