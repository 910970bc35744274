#include "report/view/folder_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/files/file_error.h"

namespace fettle {
namespace {

FileStamp stamp_of(const struct stat& status) {
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

OpenedFile::~OpenedFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string OpenedFile::read(int64_t offset, int64_t bytes) const {
  std::string out(static_cast<size_t>(std::max<int64_t>(0, bytes)), '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = pread(fd_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}

FolderFiles::FolderFiles(const std::filesystem::path& root)
    : root_(root), fd_(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) throw_file_error("read", root, errno);
}

FolderFiles::~FolderFiles() {
  if (fd_ >= 0) ::close(fd_);
}

int FolderFiles::reopen() {
  const int fresh = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fresh < 0) return errno;
  const int error = dup3(fresh, fd_, O_CLOEXEC) < 0 ? errno : 0;
  ::close(fresh);
  return error;
}

int FolderFiles::open_parent(std::string_view path, std::string& name) const {
  int folder = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  while (folder >= 0) {
    const size_t slash = path.find('/');
    name = path.substr(0, slash);
    const bool valid = !name.empty() && name != "." && name != ".." && name.find('\0') == std::string::npos;
    if (valid && slash == std::string_view::npos) return folder;
    errno = ENOENT;
    const int next = valid ? openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    const int error = errno;
    ::close(folder);
    errno = error;
    folder = next;
    if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  }
  return -1;
}

std::optional<OpenedFile> FolderFiles::open(std::string_view path) const {
  std::string name;
  const int folder = open_parent(path, name);
  if (folder < 0) return std::nullopt;
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int fd = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  ::close(folder);
  if (fd < 0) return std::nullopt;
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return std::nullopt;
  }
  return OpenedFile(fd, stamp_of(status));
}

std::optional<std::string> FolderFiles::read(std::string_view path, int64_t most) const {
  const std::optional<OpenedFile> file = open(path);
  if (!file || file->stamp().size > most) return std::nullopt;
  return file->read(0, file->stamp().size);
}

std::optional<FileStamp> FolderFiles::stamp(std::string_view path) const {
  std::string name;
  const int folder = open_parent(path, name);
  if (folder < 0) return std::nullopt;
  struct stat status {};
  const bool found = fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
  ::close(folder);
  return found ? std::optional(stamp_of(status)) : std::nullopt;
}

std::optional<std::vector<FolderEntry>> FolderFiles::list(std::string_view path, size_t most) const {
  using Entries = std::vector<FolderEntry>;
  const auto failed = [] {
    const bool missing = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return missing ? std::optional(Entries()) : std::nullopt;
  };
  int fd = -1;
  if (path.empty()) {
    fd = openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } else {
    std::string name;
    const int folder = open_parent(path, name);
    if (folder < 0) return failed();
    fd = openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int error = errno;
    ::close(folder);
    errno = error;
  }
  if (fd < 0) return failed();
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(fd), closedir);
  if (entries == nullptr) {
    const int error = errno;
    ::close(fd);
    return errno = error, std::nullopt;
  }
  Entries out;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(entries.get());
    if (entry == nullptr && errno != 0) return failed();
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || out.size() >= most) continue;
    unsigned char type = entry->d_type;
    if (type == DT_UNKNOWN) {  // some file systems do not report the type
      struct stat status {};
      if (fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
      type = S_ISDIR(status.st_mode) ? DT_DIR : S_ISREG(status.st_mode) ? DT_REG : DT_UNKNOWN;
    }
    if (type == DT_DIR || type == DT_REG) out.push_back({name, type == DT_DIR});
  }
  std::ranges::sort(out, {}, &FolderEntry::name);
  return out;
}

int FolderFiles::open_to_write(std::string_view path, int flags) const {
  std::string name;
  const int folder = open_parent(path, name);
  if (folder < 0) return -1;
  const int fd = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
  const int error = errno;
  ::close(folder);
  return errno = error, fd;
}

int FolderFiles::create(std::string_view path) const {
  const int fd = open_to_write(path, O_EXCL);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

}  // namespace fettle
