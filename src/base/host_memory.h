// Defines free_host_memory: how much memory this process may still take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fettle {

// The smallest of three numbers of bytes: what the kernel reports as available, what the control groups' limits leave,
// and what `ulimit -d` leaves. File cache counts as free, because the kernel can drop it. Returns 0 when nothing is
// left or nothing can be read. `root` is the folder that holds proc and sys.
int64_t free_host_memory(const std::filesystem::path& root = "/");

}  // namespace fettle
