#include "data/read/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace fettle {
namespace {

constexpr size_t kBlockBytes = 1 << 16;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

}  // namespace

struct ByteStream::Source {
  virtual ~Source() = default;
  // Fills `block` with the next bytes; leaves it empty at the end.
  virtual void read(std::string& block) = 0;
};

namespace {

class Plain : public ByteStream::Source {
 public:
  Plain(File file, const std::string& name) : file_(std::move(file)), name_(name) {}
  void read(std::string& block) override {
    block.resize(kBlockBytes);
    block.resize(std::fread(block.data(), 1, kBlockBytes, file_.get()));
    if (std::ferror(file_.get())) throw UserError("{}: cannot be read: {}", name_, std::strerror(errno));
  }

 private:
  File file_;
  const std::string& name_;
};

class Gzip : public ByteStream::Source {
 public:
  Gzip(File file, const std::string& name) : from_(std::move(file), name), name_(name) {
    if (inflateInit2(&state_, 15 + 16) != Z_OK) throw InternalError("zlib's inflateInit2 fails");
  }
  ~Gzip() override { inflateEnd(&state_); }
  void read(std::string& block) override {
    block.resize(kBlockBytes);
    state_.next_out = reinterpret_cast<Bytef*>(block.data());
    state_.avail_out = kBlockBytes;
    while (state_.avail_out == kBlockBytes) {
      if (state_.avail_in == 0) {
        from_.read(input_);
        if (input_.empty()) {
          if (inside_)
            throw UserError("{}: the gzip data ends early, so the file was cut off; fetch or pack it again", name_);
          break;
        }
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(input_.size());
      }
      if (!inside_) inflateReset(&state_);  // a gzip file may have several members, each with its own header
      inside_ = true;
      const int result = inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END)
        inside_ = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        throw UserError("{}: the gzip data is broken ({}); fetch or pack it again", name_,
                        state_.msg ? state_.msg : "zlib gives no reason");
    }
    block.resize(kBlockBytes - state_.avail_out);
  }

 private:
  Plain from_;
  const std::string& name_;
  std::string input_;
  z_stream state_{};
  bool inside_ = false;
};

class Zstandard : public ByteStream::Source {
 public:
  Zstandard(File file, const std::string& name)
      : from_(std::move(file), name), name_(name), state_(ZSTD_createDCtx(), ZSTD_freeDCtx) {}
  void read(std::string& block) override {
    block.resize(kBlockBytes);
    ZSTD_outBuffer out{block.data(), block.size(), 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        from_.read(input_);
        if (input_.empty()) {
          if (inside_)
            throw UserError("{}: the Zstandard data ends early, so the file was cut off; fetch or pack it again",
                            name_);
          break;
        }
        in_ = {input_.data(), input_.size(), 0};
      }
      const size_t result = ZSTD_decompressStream(state_.get(), &out, &in_);
      if (ZSTD_isError(result))
        throw UserError("{}: the Zstandard data is broken ({}); fetch or pack it again", name_,
                        ZSTD_getErrorName(result));
      inside_ = result != 0;
    }
    block.resize(out.pos);
  }

 private:
  Plain from_;
  const std::string& name_;
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> state_;
  std::string input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;
};

}  // namespace

ByteStream::ByteStream(const std::filesystem::path& file) : name_(file.string()) {
  if (std::filesystem::is_directory(file)) throw UserError("{} is a folder; name a file", name_);
  File handle(std::fopen(name_.c_str(), "rb"));
  if (!handle) throw UserError("{} cannot be read: {}", name_, std::strerror(errno));
  unsigned char magic[4] = {0, 0, 0, 0};
  const size_t count = std::fread(magic, 1, sizeof magic, handle.get());
  std::rewind(handle.get());
  if (count >= 2 && magic[0] == 0x1f && magic[1] == 0x8b)
    source_ = std::make_unique<Gzip>(std::move(handle), name_);
  else if (count == 4 && magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd)
    source_ = std::make_unique<Zstandard>(std::move(handle), name_);
  else
    source_ = std::make_unique<Plain>(std::move(handle), name_);
  // Skips a UTF-8 byte order mark.
  if (peek() == 0xef && block_.starts_with("\xef\xbb\xbf")) at_ = 3;
  if (block_.starts_with("\xff\xfe") || block_.starts_with("\xfe\xff"))
    throw UserError("{} is UTF-16; convert it to UTF-8 first, for example with `iconv -f utf-16 -t utf-8`", name_);
}

ByteStream::~ByteStream() = default;

int ByteStream::refill() {
  source_->read(block_);
  at_ = 0;
  return block_.empty() ? -1 : static_cast<unsigned char>(block_[at_++]);
}

bool ByteStream::line(std::string& line, size_t most) {
  line.clear();
  if (peek() < 0) return false;
  while (peek() >= 0) {
    const size_t end = std::min(block_.find('\n', at_), block_.size());
    line.append(block_, at_, std::min(end - at_, most + 1 - line.size()));
    at_ = end;
    if (end < block_.size()) {
      ++at_;
      break;
    }
  }
  if (line.size() <= most && line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace fettle
