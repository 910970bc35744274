#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/limits/cpus.h"

namespace fettle {

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr first;
  auto take_turns = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t t = 1; t < std::min<int64_t>(threads, count); ++t) others.emplace_back(take_turns);
    take_turns();
  }
  if (first) std::rethrow_exception(first);
}

int copy_threads() {
  static const int threads = static_cast<int>(std::min<int64_t>(usable_cpus(), 8));
  return threads;
}

}  // namespace fettle
