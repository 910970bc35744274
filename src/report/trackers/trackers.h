// Defines Trackers, which passes a run's figures to the trackers of `report_to` without slowing the run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "report/trackers/tracker.h"

namespace fettle {

// A thread opens the trackers and writes to them. No function here waits for a tracker or throws. A tracker that cannot
// be opened is left out with a warning. A tracker that fails later keeps the figures and is tried again with the next
// ones; a warning says so once.
class Trackers {
 public:
  Trackers() = default;  // none
  Trackers(const std::vector<std::string>& names, const TrackedRun& run, std::vector<TrackerRow> rows = tracker_rows());
  // Ends the run as failed unless finish() was called.
  ~Trackers();
  Trackers(const Trackers&) = delete;

  // `values` are named as in trainer_state.json: "loss", "eval_loss".
  void log(int64_t step, const std::map<std::string, double>& values);
  // Waits until everything is written, but at most `seconds`; warns about what is not. Called by the end of the run.
  void finish(bool succeeded = true, double seconds = 10);

 private:
  struct State;
  static void work(const std::vector<TrackerRow>& rows, const TrackedRun& run, State& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object when a tracker hangs
  std::thread thread_;
};

// Returns the figures' names as Hugging Face's callbacks write them: "loss" becomes "train/loss", "eval_loss"
// "eval/loss".
std::map<std::string, double> tracked_names(const std::map<std::string, double>& values);

}  // namespace fettle
