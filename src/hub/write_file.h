// Defines write_file_whole, which writes small files that other processes may be reading.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/process_name.h"

namespace fettle {

// Writes the text under a temporary name and renames it, so readers see the old or the new file, never a part. Makes
// missing folders. Returns false on failure, for example in a read-only cache, and leaves no temporary file.
inline bool write_file_whole(const std::filesystem::path& file, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(file.parent_path(), failed);
  const std::filesystem::path part = file.string() + "." + process_name() + ".tmp";
  std::ofstream out(part, std::ios::binary);
  if (!(out << text) || !out.flush()) {
    std::filesystem::remove(part, failed);
    return false;
  }
  out.close();
  std::filesystem::rename(part, file, failed);
  if (!failed) return true;
  std::filesystem::remove(part, failed);
  return false;
}

}  // namespace fettle
