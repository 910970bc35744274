// Defines Processes: the processes that train one model together, or only this process.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {

// The launcher decides the number of processes (docs/hosts.md). A single process never waits.
class Processes {
 public:
  // Makes the object for a single process.
  Processes() = default;
  // Joins the run that the launcher started. Processes other than the first then print only warnings and errors, except
  // with --verbose. Without a launcher, returns the object for a single process. Throws UserError and DeviceError like
  // join_run.
  static Processes join();

  Rendezvous* run() const { return run_.get(); }
  bool several() const { return run_ != nullptr; }
  // Only the first process writes logs and results.
  bool first() const { return run_ == nullptr || run_->rank() == 0; }
  int rank() const { return run_ == nullptr ? 0 : run_->rank(); }
  int count() const { return run_ == nullptr ? 1 : run_->size(); }

  // Runs `body` and returns its exit code. If `body` throws in one process, this function throws in that process, and
  // all processes end with the exit code of the error. In a process other than the first, the thrown error is an Error
  // that names the process.
  int end_together(const std::function<int()>& body);
  // Call this after end_together has thrown and the message is printed (Fate::end_job).
  void end_job(int exit_code, const std::string& message);
  // If this process is the first, sets a function that records the reason before it ends because of another process
  // (Fate::before_end).
  void before_end(std::function<void(const std::string& message)> record) const;
  // Records the current phase of this process ("compiling"), for the table that is printed when a run hangs.
  void enter(const std::string& phase) const;
  // Call this before each step. Returns 0 when the step may run. After any process has received a signal, all processes
  // agree on the same step or batch. There, returns the number of the signal, and the run must stop before the step.
  int stop_before(int64_t step) const;
  // The same, for the next batch of an evaluation.
  int stop_before_batch() const;

  // Runs `work` in every process, and returns the results of all processes, by rank. If `work` throws UserError,
  // DoesNotFit or filesystem_error in one process, every process throws that error. `name` says what the processes do;
  // only one thread at a time may use the same name.
  std::vector<std::string> agree(const std::string& name, const std::function<std::string()>& work) const;
  // Runs `work` in every process and returns its result. On each host, one process runs `work` first and fills a cache.
  // The other processes then read this cache.
  template <typename Work>
  auto one_per_host_first(const std::string& name, Work work) const {
    if (!several()) return work();
    std::optional<decltype(work())> made;
    for (const bool first_of_host : {true, false})
      agree(name, [&] {
        if ((run_->place().local_rank == 0) == first_of_host) made.emplace(work());
        return std::string();
      });
    return std::move(*made);
  }
  // Throws UserError in every process if a process has other values than the first process; the message names one such
  // process and a key that differs.
  void require_same(const std::string& name, const nlohmann::json& values) const;
  // Throws UserError if the processes see different folders under this path. The folder must exist in the first
  // process.
  void require_shared(const std::filesystem::path& folder) const;

 private:
  std::unique_ptr<Rendezvous> run_;
  std::unique_ptr<Fate> fate_;
};

}  // namespace fettle
