// Defines usable_cpus: how many threads of this process can run at the same time.
#pragma once

#include <cstdint>
#include <filesystem>

namespace fettle {

// Returns the number of CPUs that this process may run on, but at most its share of CPU time in CPUs, rounded up: a
// container may have four CPUs' time on a host of 64 CPUs (`docker run --cpus=4`). At least 1. `root` is the folder
// that contains proc and sys.
int64_t usable_cpus(const std::filesystem::path& root = "/");

}  // namespace fettle
