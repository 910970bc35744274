// 512 processes meet through Redis and write checkpoints together, with delays and deaths. They train nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <thread>

#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "environment.h"
#include "processes.h"
#include "temp_folder.h"
#include "train/write_in_parts.h"

namespace fettle {
namespace {

constexpr int kCount = 512;
constexpr int64_t kOwn = 64;  // elements of the array that each process owns

// What the processes tell the test, in memory that all share.
struct Figures {
  double started[kCount], joined[kCount], saved[kCount];  // seconds on the machine's steady clock
  double died;                                            // when the victim killed itself, on the same clock
  double first_cpu, server_cpu;                           // CPU seconds of process 0 and of its Redis server
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

class ManyProcesses : public testing::Test {
 protected:
  ManyProcesses()
      : figures_(static_cast<Figures*>(
            mmap(nullptr, sizeof(Figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~ManyProcesses() override { munmap(figures_, sizeof(Figures)); }

  // Writes `count` checkpoints. The process `victim` kills itself while it writes the second one.
  void save(const Processes& processes, int count, int victim, std::mt19937& random) {
    for (int number = 1; number <= count; ++number) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
      std::optional<AtomicFolder> folder;
      const std::filesystem::path path = checkpoint_path(folder_.path(), number);
      write_in_parts(
          processes, path.filename().string(),
          [&] {
            folder.emplace(path, AtomicFolder::Existing::kReplace);
            return state_folder(folder->path());
          },
          [&](StateWriter& own) {
            if (processes.rank() == victim && number == 2) {
              figures_->died = now();
              raise(SIGKILL);
            }
            const HostArray values = HostArray::from<float>(
                {DType::kF32, {kOwn}}, std::vector<float>(kOwn, static_cast<float>(processes.rank() + number)));
            own.add("array", {DType::kF32, {kCount * kOwn}}, {{processes.rank() * kOwn}, {kOwn}},
                    {values.data(), static_cast<size_t>(values.bytes())});
          },
          [&](StateWriter& all) {
            all.finish({});
            folder->commit();
          });
    }
  }

  std::vector<int> run(int checkpoints, int victim = -1) {
    const std::string port = std::to_string(free_port());
    const Environment variables[] = {{"WORLD_SIZE", std::to_string(kCount)},
                                     {"LOCAL_WORLD_SIZE", "8"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"FETTLE_STORE_PORT", port},
                                     {"FETTLE_HEARTBEAT_SECONDS", "30"}};
    return wait_for(start_processes(kCount, [&](const ProcessPlace& place) {
      std::mt19937 random(static_cast<unsigned>(place.rank));
      const Environment rank("RANK", std::to_string(place.rank)), local("LOCAL_RANK", std::to_string(place.rank % 8));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2000));
      figures_->started[place.rank] = now();
      int code = 0;
      {
        Processes processes = Processes::join();
        figures_->joined[place.rank] = now();
        code = processes.end_together([&] {
          save(processes, checkpoints, victim, random);
          figures_->saved[place.rank] = now();
          return 0;
        });
      }
      if (place.rank == 0)
        figures_->first_cpu = cpu_seconds(RUSAGE_SELF), figures_->server_cpu = cpu_seconds(RUSAGE_CHILDREN);
      return code;
    }));
  }

  void expect_complete(int number) {
    StateReader state(state_folder(checkpoint_path(folder_.path(), number)));
    state.verify();
    const HostArray values = state.read("array");
    for (int rank = 0; rank < kCount; ++rank)
      ASSERT_EQ(values.as<float>()[static_cast<size_t>(rank * kOwn)], static_cast<float>(rank + number));
  }

  TempFolder folder_;
  Figures* figures_;
};

TEST_F(ManyProcesses, MeetAndSave) {
  EXPECT_THAT(run(3), testing::Each(0));
  for (int number = 1; number <= 3; ++number) expect_complete(number);
  const Figures& f = *figures_;
  const double start = *std::ranges::max_element(f.started), all = *std::ranges::max_element(f.joined),
               end = *std::ranges::max_element(f.saved);
  std::printf(
      "%d processes: all joined %.2f s after the last one started; three checkpoints in %.2f s; process 0 used %.2f s "
      "of CPU, its server %.2f s\n",
      kCount, all - start, end - all, f.first_cpu, f.server_cpu);
}

TEST_F(ManyProcesses, ADeathEndsAllAndLeavesTheLastCheckpoint) {
  for (const int victim : {0, static_cast<int>(std::random_device()() % kCount)}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    const std::vector<int> codes = run(3, victim);
    std::printf("process %d of %d died: all ended %.2f s later\n", victim, kCount, now() - figures_->died);
    for (int rank = 0; rank < kCount; ++rank)
      EXPECT_EQ(codes[static_cast<size_t>(rank)], rank == victim ? 137 : 4) << rank;
    expect_complete(1);
    EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder_.path(), 2)));
    std::filesystem::remove_all(checkpoint_path(folder_.path(), 1));
  }
}

}  // namespace
}  // namespace fettle
