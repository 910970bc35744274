// Defines how threads of a kernel wait for each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace fettle::cpu {

// Returns when `counter` is `value`. Waking a thread takes about as long as a short task, so the thread first watches
// the counter for some ten microseconds, then sleeps. Whoever writes `value` must call notify_all() after it.
inline void wait_for(const std::atomic<int64_t>& counter, int64_t value) {
  constexpr int kLooks = 1000;
  for (int i = 0; i < kLooks; ++i) {
    if (counter.load(std::memory_order_acquire) == value) return;
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }
  for (int64_t seen; (seen = counter.load(std::memory_order_acquire)) != value;) counter.wait(seen);
}

}  // namespace fettle::cpu
