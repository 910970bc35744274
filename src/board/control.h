// Defines Control, which answers the board's requests that need the token: to start, resume and stop runs, and to run
// `fettle plan` and `fettle data` for a recipe.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "board/jobs.h"
#include "board/run_list.h"

namespace fettle {

// The functions that take and return JSON throw UserError with a sentence for the user. The comments of these functions
// show the members of the request and of the answer as {request} -> {answer}. Thread-safe.
class Control {
 public:
  explicit Control(Jobs& jobs) : jobs_(jobs) {}

  // Returns whether a process that this board started for the run is still running.
  bool works_on(const std::string& name) const;
  // {words} -> {yaml}: checks the recipe.
  nlohmann::ordered_json check(const nlohmann::ordered_json& asked) const;
  // {command: plan | data, words} -> {number}: starts the command. The next two functions take its number.
  nlohmann::ordered_json query(const nlohmann::ordered_json& asked);
  // {number} -> {running, code, out, err}: the command's state and its output. `out` is empty until the command ends;
  // `err` has what the command has written to standard error so far.
  nlohmann::ordered_json query_state(const nlohmann::ordered_json& asked);
  // {number} -> {ended}: asks the command to end; false when it is not running.
  nlohmann::ordered_json query_end(const nlohmann::ordered_json& asked);
  // {name, words} -> {name}: makes the folder of a new run and starts it there.
  nlohmann::ordered_json start(RunList& runs, const nlohmann::ordered_json& asked);
  // {name} -> {name}: continues a run from its newest checkpoint.
  nlohmann::ordered_json resume(RunList& runs, const nlohmann::ordered_json& asked);
  // {name} -> {text}: sends SIGTERM, so that the run saves a checkpoint and ends. Sends it only once to a process,
  // because a second signal would end the run without a checkpoint.
  nlohmann::ordered_json stop(RunList& runs, const nlohmann::ordered_json& asked);

 private:
  void launch(RunList& runs, const std::string& name, const std::vector<std::string>& arguments,
              const std::string& folder = "");

  Jobs& jobs_;
  mutable std::mutex mutex_;
  std::map<std::string, pid_t> started_, asked_to_stop_;  // by the run's name
};

}  // namespace fettle
