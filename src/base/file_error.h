// Defines file_error: a failure of std::filesystem as an error that the user can act on.
#pragma once

#include <filesystem>

#include "base/error.h"

namespace fettle {

inline UserError file_error(const std::filesystem::filesystem_error& error) {
  return UserError("{}: {}; check the disk and the folder's permissions", error.path1().string(),
                   error.code().message());
}

}  // namespace fettle
