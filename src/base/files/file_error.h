// Defines file_error and throw_file_error, which turn a failed file operation into an error that names a remedy.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace fettle {

inline UserError file_error(const std::filesystem::filesystem_error& error) {
  return UserError("{}: {}; check the disk and the folder's permissions", error.path1().string(),
                   error.code().message());
}

// Throws UserError for a failed file operation, or DoesNotFit when the disk or the memory is full. The message has
// `action` ("write"), `path`, the system's reason and the remedy.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

}  // namespace fettle
