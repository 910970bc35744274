#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "environment.h"
#include "processes.h"
#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/lent_store.h"
#include "runtime/rendezvous/redis_server.h"
#include "runtime/rendezvous/redis_store.h"
#include "runtime/rendezvous/rendezvous.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Seconds = Rendezvous::Seconds;

constexpr FateTimes kFast{.beat = 0.05, .silence = 1.5, .hang = 60, .farewell = 1};

// A store in memory. Several threads of the test use it as if each were a process.
class MemoryStore : public Store {
 public:
  struct Values {
    std::mutex mutex;
    std::map<std::string, std::string> all;
  };
  explicit MemoryStore(std::shared_ptr<Values> values) : values_(std::move(values)) {}
  void put(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(values_->mutex);
    values_->all[key] = value;
  }
  std::optional<std::string> try_get(const std::string& key, int) override {
    const std::lock_guard lock(values_->mutex);
    const auto found = values_->all.find(key);
    return found == values_->all.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::shared_ptr<Values> values_;
};

// A store that can be lost while the main thread fails. After lose(), the watching thread waits for an answer. When the
// main thread reports its failure, both get no answer.
class LostStore : public MemoryStore {
 public:
  LostStore() : MemoryStore(std::make_shared<Values>()) {}
  // Returns when the watching thread waits for an answer.
  void lose() {
    lost_ = true;
    asked_.get_future().wait();
  }
  // Returns when the watching thread has ended.
  void wait_for_watcher() { ended_.get_future().wait(); }
  void put(const std::string& key, const std::string& value) override {
    if (!lost_ || std::this_thread::get_id() != main_) return MemoryStore::put(key, value);
    told_.set_value();
    throw DeviceError("the store is lost");
  }
  std::optional<std::string> try_get(const std::string& key, int owner) override {
    if (!lost_) return MemoryStore::try_get(key, owner);
    struct ThreadEnd {
      std::promise<void>& ended;
      ~ThreadEnd() { ended.set_value(); }
    };
    const thread_local ThreadEnd end{ended_};
    asked_.set_value();
    told_.get_future().wait();
    throw DeviceError("the store is lost");
  }

 private:
  const std::thread::id main_ = std::this_thread::get_id();
  std::atomic<bool> lost_ = false;
  std::promise<void> asked_, told_, ended_;
};

Rendezvous join(const ProcessPlace& place, Seconds wait = Seconds(20)) {
  return Rendezvous(place, open_redis_store(place, wait), wait);
}

TEST(Rendezvous, ProcessesExchangeValuesOfAnyBytes) {
  const auto codes = wait_for(start_processes(4, [](const ProcessPlace& place) {
    Rendezvous run(place, open_redis_store(place));
    const std::string mine = std::string("\0\r\n$5", 5) + std::to_string(run.rank());
    // If a name is used again, another exchange starts.
    for (int round = 0; round < 3; ++round) {
      const auto all = run.exchange("values", mine + std::to_string(round), Seconds(20));
      for (int rank = 0; rank < 4; ++rank)
        if (all[rank] != std::string("\0\r\n$5", 5) + std::to_string(rank) + std::to_string(round)) return 1;
    }
    if (run.host(3).empty()) return 2;
    if (run.try_get("nothing")) return 3;
    if (run.rank() == 2) run.put("later", "x");
    if (run.get("later", Seconds(20)) != "x") return 4;
    run.barrier("end");
    run.leave();
    return 0;
  }));
  EXPECT_THAT(codes, Each(0));
}

TEST(Rendezvous, ManyProcessesStartQuickly) {
  constexpr int kCount = 512;
  const auto values = std::make_shared<MemoryStore::Values>();
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kCount; ++rank)
    threads.emplace_back([&, rank] {
      Rendezvous run(place_of(rank, kCount, 1), std::make_unique<MemoryStore>(values), Seconds(60));
      if (run.exchange("rank", std::to_string(rank), Seconds(60))[kCount - 1] == std::to_string(kCount - 1)) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kCount);
}

// A store that ends with process 0, which reads the last entry of process 1 before process 1 has the store's answer.
class EndingStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  void put(const std::string& key, const std::string& value) override {
    MemoryStore::put(key, value);
    if (key.ends_with("fettle/left/1")) throw DeviceError("the store has ended");
  }
};

TEST(Rendezvous, AStoreThatEndsFirstDoesNotMakeALeavingProcessFail) {
  const auto values = std::make_shared<MemoryStore::Values>();
  auto one = [&](int rank) {
    const ProcessPlace place{.rank = rank, .size = 2, .local_rank = rank, .local_size = 2, .job = "job"};
    Rendezvous run(place, std::make_unique<EndingStore>(values), Seconds(20));
    run.barrier("end of the run");
    EXPECT_NO_THROW(run.leave()) << rank;
  };
  std::thread other(one, 1);
  one(0);
  other.join();
}

// Redis 6.0 ends at a setting for a command that it does not know, and at "bind *". The script does the same.
TEST(RedisServer, StartsAnOlderRedis) {
  const TempFolder folder;
  write_text(folder / "redis-server", R"(#!/bin/bash
settings=$(cat)
bad=$(grep -m1 -E 'rename-command (FUNCTION|FCALL|FCALL_RO|EVAL_RO|EVALSHA_RO) |^bind \*' <<<"$settings")
if [[ -n $bad ]]; then
  printf "\n*** FATAL CONFIG FILE ERROR (Redis 6.0.16) ***\nReading the configuration file, at line 9\n>>> '%s'\n" "$bad"
  [[ $bad == bind* ]] && echo "Name or service not known" || echo "No such command in rename-command"
  exit 1
fi
PATH=${PATH#*:}
exec redis-server - <<<"$settings"
)");
  std::filesystem::permissions(folder / "redis-server", std::filesystem::perms::owner_all);
  const Environment older("PATH", folder.path().string() + ":" + std::getenv("PATH"));
  for (const bool local : {true, false}) {
    const int port = free_port();
    const RedisServer server(port, "word", local);
    RedisStore store("127.0.0.1", port, "word", 20, 20);
    store.put("key", "value");
    EXPECT_EQ(store.try_get("key", Store::kAnyone), "value");
  }
}

// systemd and SLURM send a signal to every process of a job, so also to the server. The processes then still need it.
TEST(RedisServer, SurvivesSignalsToTheWholeJob) {
  const TempFolder folder;
  write_text(folder / "redis-server", "#!/bin/bash\necho $$ >" + (folder / "process").string() +
                                          "\nPATH=${PATH#*:}\nexec redis-server \"$@\"\n");
  std::filesystem::permissions(folder / "redis-server", std::filesystem::perms::owner_all);
  const Environment noted("PATH", folder.path().string() + ":" + std::getenv("PATH"));
  const int port = free_port();
  pid_t process = 0;
  {
    const RedisServer server(port, "word", true);
    std::ifstream(folder / "process") >> process;
    ASSERT_GT(process, 0);
    RedisStore store("127.0.0.1", port, "word", 20, 1);
    store.put("key", "value");
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) EXPECT_EQ(kill(process, number), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a server that obeys ends within 100 ms
    EXPECT_EQ(store.try_get("key", Store::kAnyone), "value");
  }
  EXPECT_EQ(kill(process, 0), -1) << "the server ends with its object";
}

// A host may start late. Each process says itself whether it reaches the server, so silence does not mean that it
// cannot.
TEST(LentStore, WaitsForAProcessThatStartsLate) {
  const auto values = std::make_shared<MemoryStore::Values>();
  auto lend = [&](int rank) {
    ProcessPlace place = place_of(rank, 2, 1);
    return lend_redis_store(place, std::make_unique<MemoryStore>(values), Seconds(20));
  };
  auto late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    lend(1)->put("key", "value");
  });
  const auto store = lend(0);
  late.get();
  EXPECT_EQ(store->try_get("key", Store::kAnyone), "value");
  EXPECT_FALSE(values->all.contains("key")) << "the value is in the Redis server";
}

TEST(LentStore, FallsBackWhenAProcessDoesNotReachTheServer) {
  const auto values = std::make_shared<MemoryStore::Values>();
  values->all["fettle/redis/1"] = "no";
  lend_redis_store(place_of(0, 2, 1), std::make_unique<MemoryStore>(values), Seconds(20))->put("key", "value");
  EXPECT_TRUE(values->all.contains("key"));
  EXPECT_EQ(values->all["fettle/redis/use"], "no");
}

TEST(LentStore, AllProcessesNameTheProcessThatIsMissing) {
  const auto values = std::make_shared<MemoryStore::Values>();
  auto lend = [&](int rank) {
    try {
      lend_redis_store(place_of(rank, 3, 1), std::make_unique<MemoryStore>(values), Seconds(5));
    } catch (const DeviceError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  auto other = std::async(std::launch::async, lend, 1);
  EXPECT_THAT(lend(0), HasSubstr("process 2 did not answer"));
  EXPECT_THAT(other.get(), HasSubstr("process 2 did not answer"));
}

TEST(LentStore, ASignalEndsTheWait) {
  for (const int rank : {0, 1}) {
    const InterruptScope interrupts;
    raise(SIGTERM);
    const auto values = std::make_shared<MemoryStore::Values>();
    try {
      lend_redis_store(place_of(rank, 2, 1), std::make_unique<MemoryStore>(values), Seconds(20));
      ADD_FAILURE() << rank;
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), 128 + SIGTERM) << error.what();
    }
  }
}

TEST(RedisStore, ConnectsAgainWithinItsPatience) {
  const int port = free_port();
  auto server = std::make_unique<RedisServer>(port, "word", true);
  RedisStore store("127.0.0.1", port, "word", 20, 20);
  store.put("a", "1");
  server.reset();
  auto put = std::async(std::launch::async, [&] { store.put("a", "2"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  server = std::make_unique<RedisServer>(port, "word", true);
  put.get();
  EXPECT_EQ(store.try_get("a", 0), "2");
}

TEST(RedisStore, GivesUpAfterItsPatience) {
  const int port = free_port();
  auto server = std::make_unique<RedisServer>(port, "word", true);
  RedisStore store("127.0.0.1", port, "word", 20, 1);
  store.put("a", "1");
  server.reset();
  for (const auto& [least, most] : {std::pair{0.9, 5.0}, {0.0, 0.5}}) {
    const auto start = Clock::now();
    EXPECT_THROW(store.put("a", "2"), DeviceError);
    EXPECT_GE(seconds_since(start), least);
    EXPECT_LT(seconds_since(start), most);
  }
}

TEST(Rendezvous, AllProcessesStopBeforeTheSameStep) {
  // Each step ends with a barrier, as a training step does.
  const auto processes = start_processes(3, [](const ProcessPlace& place) {
    const InterruptScope interrupts;
    Rendezvous run = join(place);
    Fate fate(run, kFast);
    for (int64_t step = 0;; ++step) {
      if (const int signal = fate.stop_before(step); signal != 0) {
        const auto steps = run.exchange("stop", std::to_string(step), Seconds(20));
        fate.leave();
        return steps[0] == steps[1] && steps[0] == steps[2] && step > 0 && signal == SIGTERM ? 43 : 1;
      }
      if (step == 0 && place.rank == 1) kill(getpid(), SIGTERM);
      run.barrier("step", Seconds(20));
    }
  });
  EXPECT_THAT(wait_for(processes), Each(43));
}

// An evaluation of many batches follows the first step. The signal comes in it.
TEST(Rendezvous, AllProcessesStopBeforeTheSameBatch) {
  const auto processes = start_processes(3, [](const ProcessPlace& place) {
    const InterruptScope interrupts;
    Rendezvous run = join(place);
    Fate fate(run, kFast);
    if (fate.stop_before(0) != 0) return 1;
    fate.enter("evaluating");
    for (int64_t batch = 0;; ++batch) {
      if (const int signal = fate.stop_before_batch(); signal != 0) {
        const auto batches = run.exchange("stop", std::to_string(batch), Seconds(20));
        const bool stays = fate.stop_before(1) == SIGTERM;
        fate.leave();
        return batches[0] == batches[1] && batches[0] == batches[2] && batch > 5 && stays ? 43 : 1;
      }
      if (batch == 5 && place.rank == 1) kill(getpid(), SIGTERM);
      run.barrier("batch", Seconds(20));
    }
  });
  EXPECT_THAT(wait_for(processes), Each(43));
}

TEST(Rendezvous, AFailureEndsAllWithItsCode) {
  for (const int failing : {0, 2}) {
    const auto processes = start_processes(3, [&](const ProcessPlace& place) {
      Rendezvous run = join(place);
      Fate fate(run, kFast);
      if (place.rank == failing) {
        fate.fail(3, "it does not fit");
        return 3;
      }
      run.get("never", Seconds(20));
      return 1;
    });
    EXPECT_THAT(wait_for(processes), Each(3)) << failing;
  }
}

// The store may be lost just when the main thread fails. The process still ends with the code of its own error.
TEST(Rendezvous, AFailureWhileTheStoreIsLostKeepsItsCode) {
  const auto processes = start_processes(1, [](const ProcessPlace& place) {
    auto owned = std::make_unique<LostStore>();
    LostStore& store = *owned;
    Rendezvous run(place, std::move(owned));
    Fate fate(run, kFast);
    store.lose();
    fate.fail(3, "it does not fit");
    store.wait_for_watcher();
    return 3;
  });
  EXPECT_THAT(wait_for(processes), Each(3));
}

TEST(Rendezvous, ADeathEndsTheOthersSoon) {
  for (const int dying : {0, 1}) {
    const auto processes = start_processes(3, [&](const ProcessPlace& place) {
      Rendezvous run = join(place);
      Fate fate(run, kFast);
      if (place.rank == dying) kill(getpid(), SIGKILL);
      run.get("never", Seconds(20));
      return 1;
    });
    std::vector<int> wanted(3, 4);
    wanted[dying] = 128 + SIGKILL;
    EXPECT_EQ(wait_for(processes), wanted);
  }
}

// If a container's process is killed, the container starts it again after some seconds. At that time, the store still
// has the keys of the run.
TEST(Rendezvous, AProcessThatStartsAgainAloneIsRefused) {
  const auto processes = start_processes(3, [](const ProcessPlace& place) {
    Rendezvous run = join(place);
    if (place.rank == 1) {
      const pid_t again = fork();
      if (again == 0) {
        try {
          join(place);
        } catch (const UserError& error) {
          _exit(std::string_view(error.what()).find("start all processes together") != std::string_view::npos ? 21 : 1);
        }
        _exit(2);
      }
      EXPECT_EQ(wait_for({again}), std::vector<int>{21});
    }
    // The refused process has not disturbed this run.
    const auto all = run.exchange("later", std::to_string(place.rank), Seconds(20));
    run.leave();
    return all == std::vector<std::string>{"0", "1", "2"} && !testing::Test::HasFailure() ? 43 : 1;
  });
  EXPECT_THAT(wait_for(processes), Each(43));
}

TEST(Rendezvous, AStatusOfAnotherProcessEndsTheRun) {
  const auto processes = start_processes(2, [](const ProcessPlace& place) {
    Rendezvous run = join(place);
    if (place.rank == 0) {
      Fate fate(run, kFast);
      run.get("never", Seconds(20));
      return 1;
    }
    for (int beat = 0; beat < 60; ++beat) {
      run.put("fettle/status/1", fmt::format(R"({{"nonce": "other", "beat": {}}})", beat));
      if (run.get("never", Seconds(0.1)) ||
          run.try_get("fettle/status/0").value_or("").find("died") != std::string::npos)
        return 4;
    }
    return 1;
  });
  EXPECT_THAT(wait_for(processes), Each(4));
}

// srun without PMIx tells a process its number on the host, but not how many processes the host has.
TEST(Rendezvous, CountsTheProcessesOfAHostWhenTheLauncherDoesNotSay) {
  const auto processes = start_processes(3, [](ProcessPlace place) {
    place.local_known = false;
    place.local_rank = 0;
    place.local_size = 1;
    Rendezvous run = join(place);
    run.barrier("end");
    run.leave();
    return run.place().local_rank == place.rank && run.place().local_size == 3 ? 43 : 1;
  });
  EXPECT_THAT(wait_for(processes), Each(43));
}

TEST(Rendezvous, KeysOfAnotherJobAreNotSeen) {
  const auto values = std::make_shared<MemoryStore::Values>();
  for (const char* job : {"first", "second"}) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        ProcessPlace place = place_of(rank, 2, 1);
        place.job = job;
        Rendezvous run(place, std::make_unique<MemoryStore>(values), Seconds(20));
        EXPECT_EQ(run.exchange("job", job, Seconds(20)), std::vector<std::string>(2, job));
      });
    for (std::thread& thread : threads) thread.join();
  }
}

// A batch system may stop all processes of a job, and let them go on much later. They do not go on at the same time.
TEST(Rendezvous, APauseOfAllProcessesIsNoDeath) {
  for (const size_t first : {0, 2}) {
    TempFolder folder;
    const auto processes = start_processes(3, [&](const ProcessPlace& place) {
      Rendezvous run = join(place);
      Fate fate(run, kFast);
      run.barrier("all are there");
      std::ofstream(folder / std::to_string(place.rank)) << "here";
      while (!std::filesystem::exists(folder / "go")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      fate.leave();
      return 43;
    });
    const auto pause = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
    for (const char* rank : {"0", "1", "2"})
      while (!std::filesystem::exists(folder / rank)) pause(20);
    pause(200);
    for (const pid_t process : processes) kill(process, SIGSTOP);
    pause(2500);
    kill(processes[first], SIGCONT);
    pause(300);
    for (const pid_t process : processes) kill(process, SIGCONT);
    pause(2000);
    std::ofstream(folder / "go") << "go";
    EXPECT_THAT(wait_for(processes), Each(43)) << first;
  }
}

// docs/hosts.md states this limit.
TEST(Rendezvous, ADeathEndsTheOthersWithin10SecondsByDefault) {
  const auto processes = start_processes(3, [&](const ProcessPlace& place) {
    Rendezvous run = join(place);
    Fate fate(run, FateTimes());
    run.barrier("all are there");
    if (place.rank == 1) kill(getpid(), SIGKILL);
    run.get("never", Seconds(20));
    return 1;
  });
  EXPECT_EQ(wait_for({processes[1]}), std::vector<int>{128 + SIGKILL});
  const auto start = Clock::now();
  EXPECT_THAT(wait_for({processes[0], processes[2]}), Each(4));
  EXPECT_LT(seconds_since(start), 10);
}

TEST(Rendezvous, AHangEndsAllWithATable) {
  testing::internal::CaptureStderr();
  const auto processes = start_processes(2, [](const ProcessPlace& place) {
    Rendezvous run = join(place);
    FateTimes times = kFast;
    times.hang = 0.1;
    Fate fate(run, times);
    if (place.rank == 1) fate.enter("loading weights");
    run.get("never", Seconds(20));
    return 1;
  });
  const auto codes = wait_for(processes);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(codes, Each(4));
  EXPECT_THAT(text, HasSubstr("made no progress"));
  EXPECT_THAT(text, HasSubstr("loading weights"));
  EXPECT_THAT(text, HasSubstr("process  host"));
}

// Process 1 downloads slowly, and process 0 waits for it. The limit is 0.6 s.
TEST(Rendezvous, LongWorkWithProgressIsNoHang) {
  testing::internal::CaptureStderr();
  const auto start = Clock::now();
  const auto processes = start_processes(2, [&](const ProcessPlace& place) {
    Rendezvous run = join(place);
    FateTimes times = kFast;
    times.hang = 0.1;
    Fate fate(run, times);
    for (int i = 0; place.rank == 1 && i < 40; ++i) {
      count_progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    run.get("never", Seconds(20));
    return 1;
  });
  EXPECT_THAT(wait_for(processes), Each(4));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("made no progress"));
  EXPECT_GT(seconds_since(start), 2) << "the run ends only after the progress has ended";
}

}  // namespace
}  // namespace fettle
