// Defines read_zip: where the members of a zip file lie, for files whose members are stored uncompressed.
//
// Format: PKWARE's APPNOTE.TXT, with the 64-bit extensions. The directory is not trusted: every range is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct ZipMember {
  std::string_view name;  // within the file's bytes
  int64_t offset = 0;     // of its first byte, from the start of the file
  int64_t bytes = 0;
};

bool is_zip(std::span<const std::byte> file);  // by its first bytes

// The members in the directory's order. `path` is for messages. Throws UserError: no directory, ranges outside of the
// file, a member that is compressed or encrypted.
std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace fettle
