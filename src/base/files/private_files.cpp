#include "base/files/private_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace fettle {
namespace fs = std::filesystem;
namespace {

std::string distrust_of(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "";
  const uid_t own = geteuid();
  if (status.st_uid != own && status.st_uid != 0) {
    return fmt::format(
        "{} belongs to user {}, who could have put other code there; delete it and create it again, or become its "
        "owner (chown {} {})",
        path.string(), status.st_uid, own, path.string());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fmt::format(
        "{} can be written by other users (mode {:04o}), who could have put other code there; delete it and create it "
        "again, or if you trust them: chmod go-w {}",
        path.string(), status.st_mode & 07777, path.string());
  }
  return "";
}

}  // namespace

bool make_private_folder(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) return true;
  if (errno == ENOENT && folder.has_relative_path() && folder.parent_path() != folder) {
    return make_private_folder(folder.parent_path()) && (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST);
  }
  struct stat status {};
  if (errno != EEXIST) return false;
  if (stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return true;
  errno = ENOTDIR;
  return false;
}

std::string distrust(const fs::path& file) {
  std::error_code ignored;
  const fs::path real = fs::canonical(file, ignored);
  if (ignored) return "";
  // A link's own folder matters too: a user who may write there can replace the link.
  for (const fs::path& path : {real, real.parent_path(), fs::absolute(file).parent_path()}) {
    if (std::string found = distrust_of(path); !found.empty()) return found;
  }
  return "";
}

}  // namespace fettle
