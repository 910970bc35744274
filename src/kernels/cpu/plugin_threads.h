// Defines plugin_threads, which makes a ParallelFor from the plugin's threads and the calling thread.
#pragma once

#include "kernels/cpu/threads.h"
#include "xla/ffi/api/ffi.h"

namespace fettle::cpu {

// The calling thread runs tasks too, and waits only for tasks that other threads have begun. So it never waits for a
// free thread. `pool` must outlive the result.
ParallelFor plugin_threads(xla::ffi::ThreadPool& pool);

}  // namespace fettle::cpu
