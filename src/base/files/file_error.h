// Defines file_error, which turns a failure of std::filesystem into a UserError that names a remedy.
#pragma once

#include <filesystem>

#include "base/error.h"

namespace fettle {

inline UserError file_error(const std::filesystem::filesystem_error& error) {
  return UserError("{}: {}; check the disk and the folder's permissions", error.path1().string(),
                   error.code().message());
}

}  // namespace fettle
