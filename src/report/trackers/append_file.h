// Defines AppendFile, a file to which whole records are appended.
#pragma once

#include <filesystem>
#include <string_view>

namespace fettle {

class AppendFile {
 public:
  // Makes the file and its folders. Throws UserError when the file already exists. Throws UserError or DoesNotFit when
  // it cannot be made.
  explicit AppendFile(std::filesystem::path file);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;

  // Appends the bytes; a failed call appends nothing. Throws UserError or DoesNotFit.
  void append(std::string_view bytes);

 private:
  std::filesystem::path file_;
  int fd_;
  int64_t size_ = 0;
};

}  // namespace fettle
