// Defines MappedFile and OutputFile, and functions that read or write small files as a whole. Errors include the
// remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/files/file_mapping.h"

namespace fettle {

// A read-only mapping of a whole file. Move-only; const members may be called from any thread.
class MappedFile {
 public:
  // Throws UserError when `path` does not exist, is not a regular file or is not readable.
  explicit MappedFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  // Call check() after reading these bytes and before using the values.
  std::span<const std::byte> bytes() const { return mapping_.bytes(); }
  // Throws UserError when the bytes may be wrong because the file became shorter or its disk failed.
  void check() const;
  // will_need() starts reading the range [offset, offset + bytes) ahead; release() returns the pages of the range to
  // the system.
  void will_need(int64_t offset, int64_t bytes) const;
  void release(int64_t offset, int64_t bytes) const;

 private:
  std::filesystem::path path_;
  FileMapping mapping_;
};

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

std::string read_file(const std::filesystem::path& path);
// Writes under a temporary name, flushes and renames. At every moment, `path` is either the complete old file or the
// complete new file.
void write_file(const std::filesystem::path& path, std::string_view content);

// Reads a JSON file. Json is nlohmann::json or nlohmann::ordered_json. Throws UserError when the file is missing,
// unreadable or not JSON; the message names the file and the position in it (base/json_text.h). Python writes Infinity,
// -Infinity and NaN, which are not JSON. They are read as the object that Transformers 5 writes:
// {"__float__": "Infinity"}.
template <class Json = nlohmann::json>
Json read_json_file(const std::filesystem::path& path);
// Writes JSON like Hugging Face's libraries: keys sorted, ASCII only, a newline at the end.
void write_json_file(const std::filesystem::path& path, const nlohmann::json& value, int indent = 2);

// Returns the bytes that this user can still write on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);
// Throws DoesNotFit, which names both numbers, when fewer than `bytes` bytes are free. `what` is the name of the data
// in the message.
void require_free_bytes(const std::filesystem::path& path, int64_t bytes, std::string_view what);

// Flushes a file or folder to the disk.
void sync_path(const std::filesystem::path& path);

// Throws UserError for a failed file operation, or DoesNotFit when the disk or the memory is full. The message has
// `action` ("write"), `path`, the system's reason and the remedy.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

}  // namespace fettle
