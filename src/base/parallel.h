// Defines parallel_for: pieces of work that do not depend on one another, spread over a few threads.
#pragma once

#include <cstdint>
#include <functional>

namespace fettle {

// Calls work(i) once for each i in [0, count), begun in order, on up to `threads` threads of which the caller's is one.
// The first exception stops what has not begun and is thrown when all have ended.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& work);

// Threads worth using for copying bytes on this machine: its cores, at most 8.
int copy_threads();

}  // namespace fettle
