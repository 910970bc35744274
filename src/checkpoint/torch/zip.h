// Defines read_zip, which lists the members of a zip file. Only files with uncompressed members are supported.
//
// Format: PKWARE's APPNOTE.TXT, with the 64-bit extensions. Every range in the directory is checked, since files may be
// hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct ZipMember {
  std::string_view name;  // points into the file's bytes
  int64_t offset = 0;     // position of its first byte in the file
  int64_t bytes = 0;
};

bool is_zip(std::span<const std::byte> file);  // checks its first bytes

// Returns the members in the order of the directory. Error messages show `path`. Throws UserError when there is no
// directory, when a range is outside of the file, and for a compressed or encrypted member.
std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace fettle
