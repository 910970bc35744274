#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace fettle {

std::optional<FileLock> FileLock::try_take(const std::filesystem::path& file) {
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
  if (descriptor < 0)
    throw UserError("{}: {}; check the permissions of the cache folder", file.string(), std::strerror(errno));
  FileLock lock(descriptor);
  struct stat status {};
  // The mode 0664 lets other users of the same group wait for the lock of a shared cache.
  if (fstat(descriptor, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 0777) != 0664)
    static_cast<void>(fchmod(descriptor, 0664) == 0);
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EACCES)) return std::nullopt;
  // If the file has no name any more (no links), another process has just removed it. A lock on it excludes nobody.
  if (fstat(descriptor, &status) == 0 && status.st_nlink == 0) return std::nullopt;
  return lock;
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace fettle
