#include "kernels/cpu/plugin_threads.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "kernels/cpu/waiting.h"

namespace fettle::cpu {
namespace {

// The tasks of one call, which several threads run. `next` is the number of the next task to begin; `ended` counts the
// tasks that have ended. A thread of the pool may start after all tasks have begun, even after the call has returned.
// Such a thread finds no task.
struct Tasks {
  int64_t count;
  const std::function<void(int64_t)>* task;
  std::atomic<int64_t> next{0}, ended{0};

  void run() {
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      (*task)(i);
      if (ended.fetch_add(1) + 1 == count) ended.notify_all();
    }
  }
};

}  // namespace

ParallelFor plugin_threads(xla::ffi::ThreadPool& pool) {
  return [&pool](int64_t count, const std::function<void(int64_t)>& task) {
    auto tasks = std::make_shared<Tasks>(count, &task);
    const int64_t helpers = std::min(count, pool.num_threads()) - 1;
    for (int64_t i = 0; i < helpers; ++i) pool.Schedule([tasks] { tasks->run(); });
    tasks->run();
    wait_for(tasks->ended, count);
  };
}

}  // namespace fettle::cpu
