// Defines file_error and throw_file_error, which turn a failed file operation into an error that names a remedy.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/error.h"

namespace fettle {

// Throws UserError for a failed file operation, or DoesNotFit when the disk or the memory is full. The message has
// `action` ("write"), `path`, the system's reason and the remedy.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

// Returns what throw_file_error would throw, with the error's first path and "use" as the action. Its type is Error, so
// only the code tells UserError and DoesNotFit apart.
Error file_error(const std::filesystem::filesystem_error& error);

}  // namespace fettle
