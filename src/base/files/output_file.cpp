#include "base/files/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/free_space.h"
#include "base/process_name.h"

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

bool write_cache_file(const fs::path& path, std::string_view content) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  try {
    write_file(path, content);
    return true;
  } catch (const Error&) {
    return false;
  }
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
