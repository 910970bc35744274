// Defines each_range: elementwise FFI handlers divide their arrays into ranges, which the plugin's threads compute.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/plugin_threads.h"

namespace fettle::cpu {

// Calls task(first, count) for ranges of rows with about 32,768 elements.
template <typename Task>
void each_range(xla::ffi::ThreadPool& pool, int64_t rows, int64_t width, const Task& task) {
  constexpr int64_t kElements = 32768;
  const int64_t step = std::max<int64_t>(1, kElements / std::max<int64_t>(1, width));
  const int64_t tasks = (rows + step - 1) / step;
  auto run = [&](int64_t i) { task(i * step, std::min(step, rows - i * step)); };
  constexpr int64_t kFewest = 4;  // fewer tasks take less time than waking a thread
  if (tasks >= kFewest) return plugin_threads(pool)(tasks, run);
  for (int64_t i = 0; i < tasks; ++i) run(i);
}

}  // namespace fettle::cpu
