#include "disk/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/free_space.h"
#include "base/log.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = ".fettle-offload-";

// Opens a file that never gets a name. Returns -1 and sets errno when that fails.
int open_unnamed(const fs::path& folder, int flags) {
  return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
}

// Opens a new file and immediately deletes its name, for file systems without O_TMPFILE. Returns -1 and sets errno when
// that fails.
int open_and_unlink(const fs::path& folder, int flags) {
  for (int number = 0;; ++number) {
    const fs::path path = folder / fmt::format("{}{}-{}", kName, getpid(), number);
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0) unlink(path.c_str());
    if (fd >= 0 || errno != EEXIST || number > 100) return fd;
  }
}

// Removes the empty files that processes left when they were killed between open and unlink. This may also remove the
// name of a file whose process is just between these two calls. That process no longer needs the name.
void remove_leftovers(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with(kName)) fs::remove(it->path(), ignored);
  }
}

void reserve(int fd, const fs::path& folder, int64_t bytes) {
  const int error = fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno;
  if (error != 0 && error != EOPNOTSUPP && error != ENOSYS) throw_file_error("reserve space in", folder, error);
  // Without fallocate, a full disk is noticed only when data is written.
  if (error != 0 && ftruncate(fd, bytes) != 0) throw_file_error("reserve space in", folder, errno);
}

}  // namespace

ScratchFile::ScratchFile(const fs::path& folder, int64_t bytes, std::string_view what) : folder_(folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) throw_file_error("create", folder, code.value());
  remove_leftovers(folder);
  require_free_bytes(folder, bytes, what);
  for (const int direct : {O_DIRECT, 0}) {
    fd_ = open_unnamed(folder, direct);
    if (fd_ < 0) fd_ = open_and_unlink(folder, direct);
    if (fd_ >= 0 && direct == 0)
      warn("offload_dir: {} does not support direct I/O, so reads and writes are slower and fill the page cache",
           folder.string());
    if (fd_ >= 0 || errno != EINVAL) break;
  }
  if (fd_ < 0) throw_file_error("create a file in", folder, errno);
  try {
    reserve(fd_, folder, bytes);
  } catch (...) {
    close(fd_);
    throw;
  }
}

ScratchFile::~ScratchFile() {
  close(fd_);
}

}  // namespace fettle
