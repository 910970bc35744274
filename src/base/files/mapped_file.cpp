#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/error.h"
#include "base/files/file_error.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

// A clone without Git LFS has small text files in place of the large files.
void refuse_lfs_pointer(const MappedFile& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.starts_with("version https://git-lfs"))
    throw UserError("{}: is a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder",
                    file.path().string());
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_file_error("read", path, errno);
  struct stat status {};
  int error_number = fstat(fd, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error_number == 0 && !S_ISREG(status.st_mode)) error_number = EINVAL;
  if (error_number != 0) {
    ::close(fd);
  } else {
    mapping_ = FileMapping(fd, error_number);
  }
  if (error_number != 0) throw_file_error("read", path, error_number);
  refuse_lfs_pointer(*this);
}

void MappedFile::check() const {
  if (mapping_.intact()) return;
  throw UserError(
      "{}: the file became shorter, or its disk failed, while Fettle was reading it; stop the program that writes to "
      "it, download the file again, then restart (dmesg shows disk errors)",
      path_.string());
}

void MappedFile::release(int64_t offset, int64_t bytes) const {
  const std::span<const std::byte> file = mapping_.bytes();
  if (bytes <= 0 || file.empty()) return;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = offset / page * page;  // madvise requires the start of a page
  const int64_t end = std::min(static_cast<int64_t>(file.size()), offset + bytes);
  if (begin < end)
    madvise(const_cast<std::byte*>(file.data()) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

std::string read_file(const fs::path& path) {
  const MappedFile map(path);
  std::string text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  map.check();
  return text;
}

}  // namespace fettle
