// Defines Fate, which makes the processes of a run stop at the same place and end together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/seconds_since.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {

struct FateTimes {
  double beat = 0.5;    // seconds between two signs of life
  double silence = 8;   // a process without a sign of life for this time counts as dead
  double hang = 3600;   // a training step that takes this long counts as hanging; other phases may go on for six times
                        // as long without progress (base/progress.h) in any process
  double farewell = 3;  // longest time that a process waits before it ends: until others know of its failure, and for
                        // before_end
  // Reads FETTLE_HEARTBEAT_SECONDS (silence) and FETTLE_HANG_SECONDS (hang). Throws UserError when one is not a number
  // of 1 or more.
  static FateTimes from_environment();
};

// A thread writes signs of life to the store and watches the signs of the other processes: process 0 watches all
// processes, and all processes watch process 0. When a process fails, dies or hangs, every process prints the reason
// and ends with the same exit code. The thread ends its process with _exit(), so the code that uses Fate does not
// continue. After a hang, a table shows all processes with their hosts, steps and phases.
//
// If all processes are stopped and continued together (SIGSTOP, SIGCONT), the pause is no silence and no hang.
//
// If one process gets a signal (interrupt.h), all processes stop before the same step, or before the same batch of an
// evaluation.
class Fate {
 public:
  explicit Fate(Rendezvous& run, const FateTimes& times = FateTimes::from_environment());
  Fate(const Fate&) = delete;
  ~Fate();  // stops watching; if leave() was not called, the others treat this process as dead

  // Sets a function that records the reason before this process ends because of another process. A thread of its own
  // calls it, and its end is awaited for FateTimes::farewell seconds.
  void before_end(std::function<void(const std::string& message)> record);
  // Sets what this process does from now on, such as "loading weights". A new phase counts as progress.
  void enter(const std::string& phase);
  // Call this before each step. Returns 0 when the step may run. If a process got a signal, waits until all processes
  // agree on the place where the run stops: before a step or a batch of an evaluation. Returns the signal when this
  // place is reached, and at every later call.
  int stop_before(int64_t step);
  // The same, for the next batch of an evaluation. All processes must call these two functions in the same order.
  int stop_before_batch();
  // Tells the others that this process ends with this exit code. Waits until process 0 knows of the failure. Process 0
  // itself waits until all others know of it. The wait takes at most FateTimes::farewell seconds.
  void fail(int exit_code, const std::string& message);
  // Asks the launcher to end all processes and to return this exit code. Returns if the launcher cannot do that. Call
  // it after fail() and after printing the message. Waits first, so that the other processes can print the message,
  // too.
  void end_job(int exit_code, const std::string& message);
  // Waits until all processes have called leave(), and then stops watching.
  void leave();

 private:
  struct Seen {
    std::string status;
    Clock::time_point changed, progressed;
    std::string progress;
    bool left = false;
  };
  void watch();
  void watch_store();
  void publish();
  nlohmann::json observe(int rank);
  bool is_silent(int rank);
  void forgive(double gap);
  void look_at_all();
  void look_at_first();
  int stop_before_launch(std::unique_lock<std::mutex>& lock);
  void record_end(const std::string& message);
  [[noreturn]] void end(int exit_code, const std::string& message);
  std::string table() const;

  Rendezvous& run_;
  const FateTimes times_;
  std::mutex mutex_;  // protects the members down to `done_`
  std::condition_variable changed_;
  std::string phase_ = "starting";
  int64_t beat_ = 0, step_ = 0;  // step_: the step after the last step that was launched
  int64_t launched_ = 0;         // number of steps and batches of evaluations that were launched
  // held_: the value of launched_ when the signal came. stop_at_: the value at which all processes stop. -1: not known.
  int64_t held_ = -1, stop_at_ = -1;
  int signal_ = 0;
  int failed_ = 0;
  std::string failure_;
  std::function<void(const std::string&)> record_;
  bool left_ = false, done_ = false;

  std::mutex publishing_;
  std::vector<Seen> seen_;  // by rank; only for the watching thread, except `changed`, which mutex_ guards
  std::thread thread_;
};

}  // namespace fettle
