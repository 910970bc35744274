// Defines plugin_threads, which makes a ParallelFor from the plugin's threads and the calling thread.
#pragma once

#include "kernels/cpu/threads.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {

// The calling thread also runs tasks. At the end, it waits only for tasks that other threads have begun, so it never
// waits for other threads to become free. `pool` must outlive the result.
ParallelFor plugin_threads(xla::ffi::ThreadPool& pool);

}  // namespace fettle::cpu
