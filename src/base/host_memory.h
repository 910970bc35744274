// Defines what memory this machine has left for this process.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fettle {

// Bytes this process may still take: the least of what the kernel calls available, what the control group's limit
// leaves (its file cache can be dropped, so it counts as free) and what `ulimit -d` leaves; 0 when all of it is taken
// or nothing can be read. `root` is where proc and sys lie.
int64_t free_host_memory(const std::filesystem::path& root = "/");

}  // namespace fettle
