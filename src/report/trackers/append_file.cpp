#include "report/trackers/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/file_error.h"

namespace fettle {

AppendFile::AppendFile(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  if (error) throw_file_error("create", file_.parent_path(), error.value());
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_file_error("create", file_, errno);
}

AppendFile::~AppendFile() {
  ::close(fd_);
}

void AppendFile::append(std::string_view bytes) {
  const int64_t before = size_;
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error_number = errno;
      size_ = before;
      (void)!::ftruncate(fd_, before);
      throw_file_error("write", file_, error_number);
    }
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace fettle
