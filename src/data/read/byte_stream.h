// Defines ByteStream, which reads the bytes of a file in order, and decompresses gzip and Zstandard files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace fettle {

class ByteStream {
 public:
  // Detects compression by the first bytes, not by the name. Throws UserError when the file cannot be read or is
  // UTF-16. The constructor, next(), peek() and line() throw UserError when the compressed data is broken or ends
  // early.
  explicit ByteStream(const std::filesystem::path& file);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;

  // Returns the next byte, or -1 at the end. peek() does not move on to the following byte.
  int next() {
    if (at_ < block_.size()) return static_cast<unsigned char>(block_[at_++]);
    return refill();
  }
  int peek() {
    const int byte = next();
    if (byte >= 0) --at_;
    return byte;
  }
  // Reads the rest of the current line, without its end (\n or \r\n), into `line`; returns false at the end of the
  // file. Keeps at most `most` + 1 bytes of the line and skips the others. So a `line` of more than `most` bytes means
  // that the line was too long.
  bool line(std::string& line, size_t most);
  const std::string& name() const { return name_; }

  struct Source;  // plain, gzip or Zstandard

 private:
  int refill();

  std::string name_;
  std::unique_ptr<Source> source_;
  std::string block_;
  size_t at_ = 0;
};

}  // namespace fettle
