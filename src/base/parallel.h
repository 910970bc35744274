// Defines parallel_for, which spreads independent work over a few threads.
#pragma once

#include <cstdint>
#include <functional>

namespace fettle {

// Calls work(i) once for each i in [0, count), on up to `threads` threads including the caller's. The calls start in
// the order of i. After an exception no more calls start; parallel_for throws the first exception when the calls that
// have started are done.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& work);

// Returns the number of threads for copying bytes: usable_cpus(), at most 8.
int copy_threads();

}  // namespace fettle
