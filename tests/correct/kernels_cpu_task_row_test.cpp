// Tests groups of tasks that wait for each other.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "block_tasks.h"
#include "kernels/cpu/task_row.h"

namespace fettle::cpu {
namespace {

TEST(TaskRow, RunsEachTaskOnceAfterTheGroupThatItNeeds) {
  constexpr int64_t kFirst = 5, kFree = 4, kLast = 6;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::atomic<int>> runs(kFirst + kFree + kLast);
    std::atomic<int64_t> first_ended{0}, early{0};
    TaskRow tasks;
    const TaskRow::Group first = tasks.add(kFirst, [&](int64_t i) {
      // The first task is slow, so that others would overtake it.
      if (i == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 2 == 0 ? 500 : 0));
      ++runs[i];
      ++first_ended;
    });
    tasks.add(kFree, [&](int64_t i) { ++runs[kFirst + i]; });
    auto last = [&](int64_t i) {
      early += first_ended != kFirst;
      ++runs[kFirst + kFree + i];
    };
    EXPECT_EQ(tasks.add(kLast, last, first), first + 2);
    tasks.run(on_three_threads);
    for (const std::atomic<int>& each : runs) EXPECT_EQ(each, 1);
    EXPECT_EQ(early, 0);
  }
}

TEST(TaskRow, ATaskCanWaitInItsMiddle) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int64_t> ended{0}, early{0};
    TaskRow tasks;
    const TaskRow::Group first = tasks.add(3, [&](int64_t i) {
      if (i == 2) std::this_thread::sleep_for(std::chrono::microseconds(300));
      ++ended;
    });
    tasks.add(4, [&](int64_t) {
      tasks.wait(first);
      early += ended != 3;
    });
    tasks.run(on_three_threads);
    EXPECT_EQ(early, 0);
  }
}

TEST(TaskRow, AGroupWithoutTasksIsTheGroupBeforeIt) {
  TaskRow tasks;
  EXPECT_EQ(tasks.add(0, {}), TaskRow::kNone);
  const TaskRow::Group first = tasks.add(1, [](int64_t) {});
  EXPECT_EQ(tasks.add(0, {}, first), first);
  tasks.wait(TaskRow::kNone);
  int64_t runs = 0;
  tasks.add(
      2, [&](int64_t) { ++runs; }, first);
  tasks.run(on_one_thread);
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace fettle::cpu
