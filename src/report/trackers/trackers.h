// Defines Trackers, which passes a run's metrics to the trackers of `report_to` without slowing down the run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "report/trackers/tracker.h"

namespace fettle {

// A separate thread opens the trackers and writes to them. log() never waits for this thread, and no function throws. A
// tracker that cannot be opened is left out, with a warning. When a tracker fails later, Trackers warns once and keeps
// the metrics. Trackers tries again when the next metrics come.
class Trackers {
 public:
  Trackers() = default;  // without trackers
  // The trackers get the run's name and project with U+FFFD in place of invalid UTF-8, because their formats need
  // UTF-8.
  Trackers(const std::vector<std::string>& names, TrackedRun run, std::vector<TrackerRow> rows = tracker_rows());
  // If finish() was not called, ends the run as failed.
  ~Trackers();
  Trackers(const Trackers&) = delete;

  // `values` has the names in trainer_state.json: "loss", "eval_loss".
  void log(int64_t step, const std::map<std::string, double>& values);
  // Call it at the end of the run. Waits until all metrics are written, but at most `seconds`. Warns about metrics that
  // are not written by then.
  void finish(bool succeeded = true, double seconds = 10);

 private:
  struct State;
  static void work(const std::vector<TrackerRow>& rows, const TrackedRun& run, State& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object when a tracker hangs
  std::thread thread_;
};

}  // namespace fettle
