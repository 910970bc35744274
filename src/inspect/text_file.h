// Defines open_text_file, which opens the files of `fettle tokenize` and `fettle render`.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace fettle {

// Opens a file to read text from. Throws UserError for a file that cannot be read, and for a folder.
inline std::ifstream open_text_file(const std::string& file) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file))
    throw UserError("{}: cannot be read; check that it is an existing file", file);
  return in;
}

}  // namespace fettle
