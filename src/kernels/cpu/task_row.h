// Defines TaskRow: tasks of several steps of a kernel, which the threads take one after the other. Threads need not
// meet between two steps, and need not be woken for each of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

#include "kernels/cpu/threads.h"

namespace fettle::cpu {

// Groups of tasks, in the order in which they begin. run() may be called once.
class TaskRow {
 public:
  using Group = int64_t;
  static constexpr Group kNone = -1;

  // Appends tasks 0 ... count - 1 of a group. They run when all tasks of the earlier group `after` have ended. Returns
  // the new group, or `after` if there are no tasks.
  Group add(int64_t count, std::function<void(int64_t)> task, Group after = kNone);

  // Returns when all tasks of `group` have ended. A task may call it for a group before its own.
  void wait(Group group) const;

  void run(const ParallelFor& parallel);

 private:
  struct Tasks {
    int64_t first, count;
    std::function<void(int64_t)> task;
    Group after;
    std::atomic<int64_t> left;  // tasks that have not ended
  };

  void run_task(int64_t number);

  std::deque<Tasks> groups_;
  int64_t count_ = 0;
};

}  // namespace fettle::cpu
