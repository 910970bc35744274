// Defines retry_files: work on files that is tried again when it fails, since a full disk or a lost network file system
// is often back soon.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace fettle {

// Seconds between the attempts.
inline constexpr double kRetryPauses[] = {0.2, 1, 4};

// Returns what `work` returns. When it throws UserError or DoesNotFit, warns naming `what`, waits and tries again,
// which must be possible; the last error passes through. Once `hurried` returns true there is one more attempt, at
// once; it is asked often.
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
    }
    const auto end = steady_clock::now() + std::chrono::duration<double>(kRetryPauses[attempt]);
    while (steady_clock::now() < end && !hurried()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace fettle
