// Tests the PMIx store under mpirun. mpirun starts this program again with only the test "DISABLED_Process".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/seconds_since.h"
#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {
namespace {

using Seconds = Rendezvous::Seconds;

int mpirun(const std::string& what) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "FETTLE_TEST_PMIX=" + what + " mpirun --allow-run-as-root --oversubscribe -n 3 " + self +
      " --gtest_also_run_disabled_tests --gtest_filter=PmixStore.DISABLED_Process >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int exchange_values(Rendezvous& run) {
  for (int round = 0; round < 3; ++round) {
    const auto all = run.exchange("values", std::to_string(10 * run.rank() + round), Seconds(20));
    for (int rank = 0; rank < 3; ++rank)
      if (all[rank] != std::to_string(10 * rank + round)) return 11;
  }
  const std::string bytes("a\0b", 3);
  if (run.rank() == 1) run.put(std::string(700, 'k'), bytes);
  if (run.get(std::string(700, 'k'), Seconds(20)) != bytes) return 12;
  if (run.get("nothing", Seconds(0.1))) return 13;
  return run.place().local_rank == run.rank() && run.place().local_size == 3 ? 0 : 14;
}

int stop_together(Rendezvous& run) {
  const InterruptScope interrupts;
  Fate fate(run, {.beat = 0.05, .silence = 5, .hang = 60});
  for (int64_t step = 0;; ++step) {
    if (fate.stop_before(step) != 0) {
      const auto steps = run.exchange("stop", std::to_string(step), Seconds(20));
      fate.leave();
      return steps[0] == steps[1] && steps[0] == steps[2] ? 0 : 15;
    }
    if (step == 0 && run.rank() == 1) kill(getpid(), SIGTERM);
    run.barrier("step", Seconds(20));
  }
}

// Sends heartbeats as a run does, but a hundred times as often. Reads the heartbeats of all processes. Returns 17 if a
// heartbeat does not change for 3 s, or is older than an earlier one of the same process.
int see_all_beats(Rendezvous& run) {
  const auto start = Clock::now();
  std::vector<int> last(3, 0);
  std::vector<Clock::time_point> changed(3, start);
  for (int beat = 1; seconds_since(start) < 8; ++beat) {
    run.put("beat/" + std::to_string(run.rank()), std::to_string(beat));
    for (int other = 0; other < 3; ++other) {
      const auto found = run.try_get("beat/" + std::to_string(other), other);
      const auto at = static_cast<size_t>(other);
      const int now = found ? std::stoi(*found) : 0;
      if (now < last[at] || (now == last[at] && seconds_since(changed[at]) > 3)) {
        dprintf(2, "process %d saw beat %d of %d, then %d, %.1f s later\n", run.rank(), last[at], other, now,
                seconds_since(changed[at]));
        return 17;
      }
      if (now != last[at]) last[at] = now, changed[at] = Clock::now();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}

TEST(PmixStore, DISABLED_Process) {
  int code = 19;
  {
    const auto run = join_run();
    const std::string what = environment("FETTLE_TEST_PMIX");
    if (run != nullptr && run->place().engine == Engine::kPmix) {
      if (what == "values") code = exchange_values(*run);
      if (what == "stop") code = stop_together(*run);
      if (what == "beats") code = see_all_beats(*run);
      if (what == "fail") {
        Fate fate(*run, {.beat = 0.05, .silence = 5, .hang = 60});
        if (run->rank() == 2) {
          fate.fail(3, "it does not fit");
          fate.end_job(3, "it does not fit");
          sleep(10);
          _exit(18);  // the launcher has not ended this process
        }
        run->get("never", Seconds(20));
        code = 16;
      } else if (what != "stop") {  // stop_together() has left the run already
        run->barrier("end", Seconds(20));
        run->leave();
      }
    }
  }
  std::exit(code);
}

class Pmix : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(Pmix, CarriesTheRunsUnderMpirun) {
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed";
  // Open MPI's PMIx 4.2 sometimes loses a value, which looks like the death of a process (docs/status.md).
  int code = mpirun(GetParam().first);
  for (int again = 0; again < 2 && code == 4; ++again) code = mpirun(GetParam().first);
  EXPECT_EQ(code, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(All, Pmix,
                         testing::Values(std::pair("values", 0), std::pair("stop", 0), std::pair("fail", 3),
                                         std::pair("beats", 0)),
                         [](const auto& one) { return std::string(one.param.first); });

}  // namespace
}  // namespace fettle
