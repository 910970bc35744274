// Defines OutputFile and TensorOutput, and functions that read or write small files as a whole. Errors include the
// remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_error.h"
#include "base/files/mapped_file.h"

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

// A file with a header and tensors. The tensors are written piece by piece, in bounded memory. Move-only. The
// destructor removes the file unless finish() was called.
class TensorOutput {
 public:
  struct Place {
    std::string name;
    int64_t offset, bytes;
  };
  // Creates the file, reserves `bytes` and writes the header. Throws like OutputFile.
  TensorOutput(std::filesystem::path path, int64_t bytes, std::string_view header, std::vector<Place> tensors);

  const std::filesystem::path& path() const { return file_.path(); }
  // Writes `bytes` at byte `at` of the tensor with the index `tensor`. Tensors and pieces may come in any order, but
  // each byte only once.
  void write(size_t tensor, std::span<const std::byte> bytes, int64_t at);
  // Flushes to the disk and closes. Throws InternalError, which names the tensor, when a tensor is incomplete.
  void finish();

 private:
  std::vector<Place> tensors_;
  OutputFile file_;
  std::vector<int64_t> written_;  // for each tensor, the bytes written so far
};

// Writes under a temporary name, flushes and renames. At every moment, `path` is either the complete old file or the
// complete new file.
void write_file(const std::filesystem::path& path, std::string_view content);

// Reads a JSON file. Json is nlohmann::json or nlohmann::ordered_json. Throws UserError when the file is missing,
// unreadable or not JSON; the message names the file and the position in it (base/json_text.h). Python writes Infinity,
// -Infinity and NaN, which are not JSON. Reads Infinity as the object {"__float__": "Infinity"}, which Transformers 5
// writes, and the other two words in the same way.
template <class Json = nlohmann::json>
Json read_json_file(const std::filesystem::path& path);
// Writes JSON like Hugging Face's libraries: keys sorted, ASCII only, a newline at the end.
void write_json_file(const std::filesystem::path& path, const nlohmann::json& value, int indent = 2);

// Returns the bytes that this user can still write on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);
// Throws DoesNotFit when fewer than `bytes` bytes are free. The message has both numbers and calls the data `what`.
void require_free_bytes(const std::filesystem::path& path, int64_t bytes, std::string_view what);

// Flushes a file or folder to the disk.
void sync_path(const std::filesystem::path& path);

}  // namespace fettle
