// Defines retry_files, which repeats file operations that fail. A full disk or a lost network file system is often
// usable again after a short time.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/log.h"

namespace fettle {

// The seconds between the attempts.
inline constexpr double kRetryPauses[] = {0.2, 1, 4};

// Returns the result of `work`, which must be repeatable. If `work` throws UserError, DoesNotFit or filesystem_error,
// prints a warning that begins with `what`, waits, and tries again. Throws the error of the last attempt; a
// filesystem_error becomes file_error()'s error. If `hurried` returns true while this function waits, stops waiting and
// makes one last attempt. `hurried` is called often.
template <typename Work>
auto retry_files(
    const std::string& what, Work work, const std::function<bool()>& hurried = [] { return false; }) {
  using std::chrono::steady_clock;
  for (size_t attempt = 0;; ++attempt) {
    const bool last = attempt == std::size(kRetryPauses) || (attempt > 0 && hurried());
    try {
      return work();
    } catch (const Error& error) {
      const bool of_files = error.code() == ExitCode::kUser || error.code() == ExitCode::kDoesNotFit;
      if (!of_files || last) throw;
      warn("{}: {}; trying again", what, error.what());
    } catch (const std::filesystem::filesystem_error& error) {
      if (last) throw_file_error("use", error.path1(), error.code().value());
      warn("{}: {}; trying again", what, file_error(error).what());
    }
    const auto end = steady_clock::now() + std::chrono::duration<double>(kRetryPauses[attempt]);
    while (steady_clock::now() < end && !hurried()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace fettle
