// Defines free_bytes and require_free_bytes: the free space of a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace fettle {

// Returns the bytes that this user can still write on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);
// Throws DoesNotFit when fewer than `bytes` bytes are free. The message has both numbers and calls the data `what`.
void require_free_bytes(const std::filesystem::path& path, int64_t bytes, std::string_view what);

}  // namespace fettle
