#include "base/files/free_space.h"

#include <sys/statvfs.h>

#include <cerrno>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/size_text.h"

namespace fettle {
namespace fs = std::filesystem;

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

}  // namespace fettle
