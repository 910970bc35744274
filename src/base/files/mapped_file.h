// Defines MappedFile, which reads a file through a mapping, and read_file. Errors include the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/files/file_mapping.h"

namespace fettle {

// A read-only mapping of a whole file. Move-only; const members may be called from any thread.
class MappedFile {
 public:
  // Throws UserError when `path` does not exist, is not a regular file, is not readable or is a Git LFS pointer.
  explicit MappedFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  // Call check() after reading these bytes and before using the values.
  std::span<const std::byte> bytes() const { return mapping_.bytes(); }
  // Throws UserError when the bytes may be wrong because the file became shorter or its disk failed.
  void check() const;
  // Returns the pages of the range [offset, offset + bytes) to the system.
  void release(int64_t offset, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  FileMapping mapping_;
};

// Returns the bytes of a file. Throws the errors of MappedFile.
std::string read_file(const std::filesystem::path& path);

}  // namespace fettle
