// Defines MappedFile and OutputFile, and reads and writes small files whole, with errors a user can act on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/file_mapping.h"

namespace fettle {

// A read-only mapping of a whole file. Move-only; const members may be called from any thread.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws UserError: missing, a folder, not readable
  const std::filesystem::path& path() const { return path_; }
  // Call check() after reading these bytes and before using what was read.
  std::span<const std::byte> bytes() const { return mapping_.bytes(); }
  // Throws UserError when bytes that were read may be wrong: the file was cut short meanwhile, or its disk failed.
  void check() const;
  // Starts reading [offset, offset + bytes) ahead, and gives its pages back to the system after use.
  void will_need(int64_t offset, int64_t bytes) const;
  void release(int64_t offset, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  FileMapping mapping_;
};

// A new file, written at any offset. Move-only; removed again unless finish() was called.
class OutputFile {
 public:
  // Creates or overwrites `path` and reserves `bytes` on the disk. Throws UserError when not writable or the disk is
  // full, as every member does.
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

std::string read_file(const std::filesystem::path& path);
// Writes under a temporary name, flushes and renames: `path` is the old file or the new one, never a part.
void write_file(const std::filesystem::path& path, std::string_view content);

// Json is nlohmann::json or nlohmann::ordered_json. Throws UserError when it is missing, unreadable or not JSON,
// naming the file and the place (base/json_text.h).
template <class Json = nlohmann::json>
Json read_json_file(const std::filesystem::path& path);
// As Hugging Face's libraries write JSON: keys sorted, ASCII only, a newline at the end.
void write_json_file(const std::filesystem::path& path, const nlohmann::json& value, int indent = 2);

// Bytes this user can still write on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);
// Throws UserError naming both figures when fewer than `bytes` are free; `what` says what is to be written.
void require_free_bytes(const std::filesystem::path& path, int64_t bytes, std::string_view what);

// Flushes a file's or folder's content to the disk.
void sync_path(const std::filesystem::path& path);

// Throws UserError for a failed file operation: `action` ("write") on `path`, the system's reason, the remedy.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

}  // namespace fettle
