// Defines ParallelFor: how the kernels for the CPU share work among threads.
#pragma once

#include <cstdint>
#include <functional>

namespace fettle::cpu {

// Calls task(0) ... task(count - 1) once each, on any threads. The calls begin in this order, so a task may wait for
// one with a lower number. Returns when all calls have returned.
using ParallelFor = std::function<void(int64_t count, const std::function<void(int64_t)>& task)>;

}  // namespace fettle::cpu
