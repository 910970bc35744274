// Defines write_file_whole, for small files that other processes read meanwhile.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fettle {

// Writes the text under another name and renames it, making the folders above. Returns false when that fails, such as
// in a cache that may only be read.
inline bool write_file_whole(const std::filesystem::path& file, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(file.parent_path(), failed);
  const std::filesystem::path part = file.string() + "." + std::to_string(getpid()) + ".tmp";
  std::ofstream out(part, std::ios::binary);
  if (!(out << text) || !out.flush()) {
    std::filesystem::remove(part, failed);
    return false;
  }
  out.close();
  std::filesystem::rename(part, file, failed);
  return !failed;
}

}  // namespace fettle
