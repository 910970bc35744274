#include "base/files/file_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

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
    case EINVAL:
      return action == "read" ? "set the path to a regular file, not to a pipe or a device" : "check the disk";
    case ENOTDIR: return "a part of the path is a file, not a folder: remove it or choose another path";
    case EISDIR: return "it is a folder, wanted a file";
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    case ENOMEM: return "this machine's memory is used up: stop other programs";
    case EFBIG: return "the file system or ulimit -f does not allow files of this size";
    default: return "check the disk";
  }
}

}  // namespace

void throw_file_error(std::string_view action, const fs::path& path, int error_number) {
  const std::string text = fmt::format("cannot {} {}: {}; {}", action, path.string(), std::strerror(error_number),
                                       remedy(action, error_number, path));
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == ENOMEM) throw DoesNotFit("{}", text);
  throw UserError("{}", text);
}

Error file_error(const fs::filesystem_error& error) {
  try {
    throw_file_error("use", error.path1(), error.code().value());
  } catch (const Error& ours) {
    return ours;
  }
}

}  // namespace fettle
