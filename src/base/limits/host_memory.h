// Defines free_host_memory and resident_bytes: how much memory this process may still take, and how much it
// takes now.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fettle {

// Returns the smallest of three numbers of bytes: the memory that the kernel reports as available, the memory left
// below the limits of the control groups, and the memory left below `ulimit -d`. File cache counts as free, because the
// kernel can drop it. Returns 0 when nothing is left or when the available memory cannot be read. `root` is the folder
// that contains proc and sys.
int64_t free_host_memory(const std::filesystem::path& root = "/");

// Returns the bytes of memory that this process occupies now; 0 when that cannot be read.
int64_t resident_bytes();

}  // namespace fettle
