// Defines OutputFile, and functions that write small files as a whole. Errors include the remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace fettle {

// A new file, written at any offset. Move-only. The destructor removes it unless finish() was called.
class OutputFile {
 public:
  // Creates or overwrites `path` and reserves `bytes` on the disk. All members throw UserError when the file is not
  // writable, and DoesNotFit when the disk is full.
  explicit OutputFile(std::filesystem::path path, int64_t bytes = 0);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::filesystem::path& path() const { return path_; }
  void write(int64_t offset, std::span<const std::byte> bytes);
  void finish();  // flushes to the disk and closes

 private:
  void fail(int error_number);

  std::filesystem::path path_;
  int fd_ = -1;
};

// Writes under a temporary name, flushes and renames. At every moment, `path` is either the complete old file or the
// complete new file.
void write_file(const std::filesystem::path& path, std::string_view content);
// The same, for a file of a cache that may be read-only. Makes missing folders. Returns false on failure.
bool write_cache_file(const std::filesystem::path& path, std::string_view content);

// Flushes a file or folder to the disk.
void sync_path(const std::filesystem::path& path);

}  // namespace fettle
