#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/process_name.h"
#include "base/size_text.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

// Reads one byte of each page.
void touch(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes.size(); at += page) (void)*static_cast<const volatile std::byte*>(&bytes[at]);
  if (!bytes.empty()) (void)*static_cast<const volatile std::byte*>(&bytes.back());
}

}  // namespace

OutputFile::OutputFile(fs::path path, int64_t bytes) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_file_error("write", path_, errno);
  if (bytes > 0) {
    // Checks the free space first, because fallocate fills the disk before it fails.
    if (bytes > free_bytes(path_)) fail(ENOSPC);
    // On a file system without fallocate, a full disk is noticed only when data is written.
    const int error_number = fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
    if (error_number != 0 && error_number != EOPNOTSUPP && error_number != ENOSYS) fail(error_number);
    if (error_number != 0 && ftruncate(fd_, bytes) != 0) fail(errno);
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void OutputFile::fail(int error_number) {
  std::error_code ignored;
  ::close(std::exchange(fd_, -1));
  fs::remove(path_, ignored);
  throw_file_error("write", path_, error_number);
}

void OutputFile::write(int64_t offset, std::span<const std::byte> bytes) {
  internal_check(fd_ >= 0, "OutputFile::write after finish: {}", path_.string());
  bool touched = false;
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EFAULT && !touched) {
      // These bytes may come from a mapped file that has become shorter. Reading them here marks that mapping and
      // replaces the lost bytes by zeros (base/files/file_mapping.h), so the next try does not fail.
      touch(bytes);
      touched = true;
      continue;
    }
    if (n <= 0) fail(n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void OutputFile::finish() {
  internal_check(fd_ >= 0, "OutputFile::finish twice: {}", path_.string());
  if (fsync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0) throw_file_error("write", path_, errno);
}

TensorOutput::TensorOutput(fs::path path, int64_t bytes, std::string_view header, std::vector<Place> tensors)
    : tensors_(std::move(tensors)), file_(std::move(path), bytes), written_(tensors_.size(), 0) {
  file_.write(0, std::as_bytes(std::span(header)));
}

void TensorOutput::write(size_t tensor, std::span<const std::byte> bytes, int64_t at) {
  internal_check(tensor < tensors_.size(), "{}: it has no tensor {}", path().string(), tensor);
  const Place& place = tensors_[tensor];
  const auto count = static_cast<int64_t>(bytes.size());
  internal_check(at >= 0 && at <= place.bytes && count <= place.bytes - at && written_[tensor] <= place.bytes - count,
                 "{}: bytes [{}, {}) do not fit into tensor '{}': it has {} bytes, and {} are already written",
                 path().string(), at, at + count, place.name, place.bytes, written_[tensor]);
  file_.write(place.offset + at, bytes);
  written_[tensor] += count;
}

void TensorOutput::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i)
    internal_check(written_[i] == tensors_[i].bytes, "{}: {} of {} bytes of tensor '{}' were written", path().string(),
                   written_[i], tensors_[i].bytes, tensors_[i].name);
  file_.finish();
}

void write_file(const fs::path& path, std::string_view content) {
  fs::path temporary = path;
  temporary += ".tmp-" + process_name();
  OutputFile file(temporary);
  file.write(0, std::as_bytes(std::span(content.data(), content.size())));
  file.finish();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    throw_file_error("write", path, error_number);
  }
  sync_path(path.parent_path().empty() ? "." : path.parent_path());
}

namespace {

// Returns `text` with each word Infinity, -Infinity or NaN outside of strings replaced by an object such as
// {"__float__": "Infinity"}. Python writes these words into JSON, so older configs have them, for example those of
// Nemotron-H. Transformers 5 writes the object instead.
std::string with_marked_floats(const std::string& text) {
  bool quoted = false;
  std::string out;
  size_t copied = 0;  // number of bytes of `text` that were copied or replaced so far
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (!std::string_view(text).substr(i).starts_with(word)) continue;
        out.append(text, copied, i - copied);
        out += fmt::format("{{\"__float__\": \"{}\"}}", word);
        i += word.size() - 1;
        copied = i + 1;
        break;
      }
    }
  }
  return out.append(text, copied);
}

}  // namespace

template <class Json>
Json read_json_file(const fs::path& path) {
  const std::string text = with_marked_floats(read_file(path));
  try {
    return parse_json<Json>(text);
  } catch (const UserError& error) {
    throw UserError("{}: is not valid JSON: {}; correct the file or fetch it again", path.string(), error.what());
  }
}

template nlohmann::json read_json_file(const fs::path&);
template nlohmann::ordered_json read_json_file(const fs::path&);

void write_json_file(const fs::path& path, const nlohmann::json& value, int indent) {
  write_file(path, value.dump(indent, ' ', true) + "\n");
}

int64_t free_bytes(const fs::path& path) {
  std::error_code code;
  fs::path at = fs::absolute(path);
  while (!fs::exists(at, code) && at != at.root_path()) at = at.parent_path();
  struct statvfs status {};
  if (statvfs(at.c_str(), &status) != 0) throw_file_error("read the free space of", at, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void require_free_bytes(const fs::path& path, int64_t bytes, std::string_view what) {
  const int64_t available = free_bytes(path);
  if (available >= bytes) return;
  throw DoesNotFit("{}: {} needs {} of disk space, but {} are free; free some space or choose another disk",
                   path.string(), what, size_text(bytes), size_text(available));
}

void sync_path(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_file_error("flush", path, errno);
  // Some network file systems flush folders themselves and refuse to flush a folder on request.
  const int error_number = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
  ::close(fd);
  if (error_number != 0) throw_file_error("flush", path, error_number);
}

}  // namespace fettle
