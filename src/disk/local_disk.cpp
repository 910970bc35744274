#include "disk/local_disk.h"

#include <sys/vfs.h>

#include <cerrno>

#include "base/error.h"
#include "base/files/file_error.h"

namespace fettle {
namespace {

struct FileSystem {
  int64_t type;
  std::string_view what;
};

// Sources of the numbers: Linux's magic.h and the manual page of statfs. Lustre, GPFS and BeeGFS define their numbers
// themselves.
constexpr FileSystem kNotLocal[] = {
    {0x01021994, "a file system in memory (tmpfs)"},
    {0x858458f6, "a file system in memory (ramfs)"},
    {0x958458f6, "a file system in memory (hugetlbfs)"},
    {0x6969, "a network file system (NFS)"},
    {0x517b, "a network file system (SMB)"},
    {0xfe534d42, "a network file system (SMB)"},
    {0xff534d42, "a network file system (SMB)"},
    {0x00c36400, "a network file system (Ceph)"},
    {0x5346414f, "a network file system (AFS)"},
    {0x0bd00bd0, "a network file system (Lustre)"},
    {0x47504653, "a network file system (GPFS)"},
    {0x19830326, "a network file system (BeeGFS)"},
};

}  // namespace

std::string_view not_a_local_disk(int64_t type) {
  for (const FileSystem& one : kNotLocal)
    if (one.type == (type & 0xffffffff)) return one.what;  // an f_type of 32 signed bits may be negative
  return "";
}

void require_local_disk(const std::filesystem::path& folder, std::string_view where) {
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) throw_file_error("read the file system of", folder, errno);
  const std::string_view what = not_a_local_disk(static_cast<int64_t>(status.f_type));
  if (!what.empty())
    throw UserError("{}: offload_dir: {} is on {}; choose a folder on a local disk, such as an NVMe drive", where,
                    folder.string(), what);
}

}  // namespace fettle
