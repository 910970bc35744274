#include "kernels/cpu/task_row.h"

#include <algorithm>

#include "kernels/cpu/waiting.h"

namespace fettle::cpu {

TaskRow::Group TaskRow::add(int64_t count, std::function<void(int64_t)> task, Group after) {
  if (count == 0) return after;
  groups_.emplace_back(count_, count, std::move(task), after, count);
  count_ += count;
  return static_cast<Group>(groups_.size()) - 1;
}

void TaskRow::wait(Group group) const {
  if (group == kNone) return;
  wait_for(groups_[group].left, 0);
}

void TaskRow::run_task(int64_t number) {
  auto group = std::ranges::upper_bound(groups_, number, {}, &Tasks::first) - 1;
  wait(group->after);
  group->task(number - group->first);
  if (group->left.fetch_sub(1, std::memory_order_acq_rel) == 1) group->left.notify_all();
}

void TaskRow::run(const ParallelFor& parallel) {
  parallel(count_, [this](int64_t number) { run_task(number); });
}

}  // namespace fettle::cpu
