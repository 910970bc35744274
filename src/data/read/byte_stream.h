// Defines ByteStream: a file's bytes in order, uncompressed when it is gzip or Zstandard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace fettle {

class ByteStream {
 public:
  // Looks at the first bytes, not at the name, to see how the file is compressed. Throws UserError when it cannot be
  // read; next() throws UserError when the compressed data is broken or ends early.
  explicit ByteStream(const std::filesystem::path& file);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;

  // The next byte, or -1 at the end.
  int next() {
    if (at_ < block_.size()) return static_cast<unsigned char>(block_[at_++]);
    return refill();
  }
  int peek() {
    const int byte = next();
    if (byte >= 0) --at_;
    return byte;
  }
  // The rest of the current line without its end (\n or \r\n) into `line`; false at the end of the file. Of a line of
  // more than `most` bytes the first `most` + 1 are kept and the others read over.
  bool line(std::string& line, size_t most);
  const std::string& name() const { return name_; }

  struct Source;  // how the bytes come: plain, gzip, Zstandard

 private:
  int refill();

  std::string name_;
  std::unique_ptr<Source> source_;
  std::string block_;
  size_t at_ = 0;
};

}  // namespace fettle
