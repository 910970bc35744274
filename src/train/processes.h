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

// The launcher decides how many there are (docs/hosts.md). A single process waits for nobody.
class Processes {
 public:
  // Makes the object for a single process.
  Processes() = default;
  // Joins the run that the launcher started, if there is one. Processes other than the first then print only warnings
  // and errors. Throws UserError.
  static Processes join();

  Rendezvous* run() const { return run_.get(); }
  bool several() const { return run_ != nullptr; }
  // Only the first process writes logs and results.
  bool first() const { return run_ == nullptr || run_->rank() == 0; }
  int rank() const { return run_ == nullptr ? 0 : run_->rank(); }
  int count() const { return run_ == nullptr ? 1 : run_->size(); }

  // Returns the exit code of `body`. If it fails in one process, all processes end with the code of that error.
  int end_together(const std::function<int()>& body);
  // Tells what this process does now, for the table that is printed when a run hangs.
  void enter(const std::string& phase) const;
  // Call before each step. Returns the signal when all processes stop before this step, else 0.
  int stop_before(int64_t step) const;

  // Runs `work` in every process, and returns what each one returned, by rank. When it throws UserError, DoesNotFit or
  // filesystem_error in one process, every process throws that error. `name` says what the processes do; only one
  // thread at a time may use it.
  std::vector<std::string> agree(const std::string& name, const std::function<std::string()>& work) const;
  // Returns the value of `work`. It runs first in one process of each host, then in the others, which find the first
  // one's results in a cache.
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
  // Throws UserError in every process unless all have the same values; the message names the first key and process that
  // differ.
  void require_same(const std::string& name, const nlohmann::json& values) const;
  // Throws UserError unless all processes see the folder, which must exist in the first one.
  void require_shared(const std::filesystem::path& folder) const;

 private:
  std::unique_ptr<Rendezvous> run_;
  std::unique_ptr<Fate> fate_;
};

}  // namespace fettle
