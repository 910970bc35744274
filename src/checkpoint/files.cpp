#include "checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/process_name.h"
#include "base/size_text.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

std::string remedy(std::string_view action, int error_number, const fs::path& path) {
  switch (error_number) {
    case ENOENT: return "check the path";
    case EACCES:
    case EPERM: return "check the owner and permissions (ls -l), or choose another folder";
    case EROFS: return "the file system is read-only: choose another folder";
    case ENOSPC: {
      std::error_code code;
      const fs::space_info space = fs::space(path.parent_path().empty() ? "." : path.parent_path(), code);
      return code ? std::string("free some space or choose another disk")
                  : fmt::format("that disk has {:.2f} GB left: free some space or choose another disk",
                                static_cast<double>(space.available) / 1e9);
    }
    case EDQUOT: return "your quota is used up: free some space or choose another disk";
    case EINVAL: return action == "read" ? "name a regular file, not a pipe or a device" : "check the disk";
    case ENOTDIR: return "a part of the path is a file, not a folder: remove it or choose another path";
    case EISDIR: return "it is a folder, wanted a file";
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    case ENOMEM: return "this machine's memory is used up: stop other programs";
    case EFBIG: return "the file system or ulimit -f does not allow files of this size";
    default: return "check the disk";
  }
}

// Reads one byte of each page.
void touch(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (size_t at = 0; at < bytes.size(); at += page) (void)*static_cast<const volatile std::byte*>(&bytes[at]);
  if (!bytes.empty()) (void)*static_cast<const volatile std::byte*>(&bytes.back());
}

// Moves the start of the range back to the start of a page, as madvise requires.
void advise(std::span<const std::byte> file, int64_t offset, int64_t bytes, int advice) {
  if (bytes <= 0 || file.empty()) return;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t begin = offset / page * page;
  const int64_t end = std::min(static_cast<int64_t>(file.size()), offset + bytes);
  if (begin < end) madvise(const_cast<std::byte*>(file.data()) + begin, static_cast<size_t>(end - begin), advice);
}

}  // namespace

void throw_file_error(std::string_view action, const fs::path& path, int error_number) {
  const std::string text = fmt::format("cannot {} {}: {}; {}", action, path.string(), std::strerror(error_number),
                                       remedy(action, error_number, path));
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == ENOMEM) throw DoesNotFit("{}", text);
  throw UserError("{}", text);
}

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
}

void MappedFile::check() const {
  if (mapping_.intact()) return;
  throw UserError(
      "{}: the file became shorter, or its disk failed, while Fettle was reading it; stop the program that writes to "
      "it, download the file again, then restart (dmesg shows disk errors)",
      path_.string());
}

void MappedFile::will_need(int64_t offset, int64_t bytes) const {
  advise(mapping_.bytes(), offset, bytes, MADV_WILLNEED);
}
void MappedFile::release(int64_t offset, int64_t bytes) const {
  advise(mapping_.bytes(), offset, bytes, MADV_DONTNEED);
}

OutputFile::OutputFile(fs::path path, int64_t bytes) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_file_error("write", path_, errno);
  if (bytes > 0) {
    // Checks the free space first, because a reservation that fails would fill the disk for a moment.
    if (bytes > free_bytes(path_)) fail(ENOSPC);
    // Without fallocate, a full disk is noticed only when data is written.
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

std::string read_file(const fs::path& path) {
  const MappedFile map(path);
  std::string text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  map.check();
  return text;
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

// Returns the text with {"__float__": "Infinity"} in place of each Infinity outside of strings; the same for -Infinity
// and NaN. Older configs, such as those of Nemotron-H, have these words, because Python writes them into JSON.
// Transformers 5 writes the object.
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
  // Some network file systems do not support flushing a folder; they flush it themselves.
  const int error_number = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
  ::close(fd);
  if (error_number != 0) throw_file_error("flush", path, error_number);
}

}  // namespace fettle
