// Defines which file systems offload_dir accepts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace fettle {

// Returns why a file system cannot keep optimizer state, for example "a file system in memory (tmpfs)". `type` is
// statfs::f_type. Returns "" for all types that are not in the table. Most of these types are local disks; a few, such
// as FUSE, may be something else.
std::string_view not_a_local_disk(int64_t type);

// Throws UserError when `folder`, which must exist, is not on a local disk. `where` says where offload_dir was set.
void require_local_disk(const std::filesystem::path& folder, std::string_view where);

}  // namespace fettle
