// Defines Tracker: a tool that shows the metrics of a run, in addition to the run's own logs. An example is
// TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/local_time.h"

namespace fettle {

// The metrics of one step, with their names in trainer_state.json: "loss", "eval_loss".
struct TrackedFigures {
  int64_t step = 0;
  double time = 0;  // seconds since 1970; 0: not known
  std::map<std::string, double> values;
};

// The facts that a tracker gets about a run at its start.
struct TrackedRun {
  std::string id;                     // 8 lower-case letters and digits; a resumed run has the id of its first start
  std::string name;                   // run_name, else the name of output_dir
  std::string project;                // the project that the run belongs to
  std::filesystem::path folder;       // output_dir
  std::filesystem::path logging_dir;  // folder of TensorBoard's files; empty: runs/DATE_TIME in `folder`
  LocalTime started;                  // the run's first start
  // The step from which the run continues. Records of later steps are obsolete, because the run computes these steps
  // again.
  int64_t resumed_step = 0;
  std::vector<TrackedFigures> earlier = {};  // the metrics up to `resumed_step`, without their times
  nlohmann::json config;                     // the recipe keys that differ from their defaults, and their values
};

// Returns the metrics with the names that most of Hugging Face's callbacks write: "loss" becomes "train/loss",
// "eval_loss" becomes "eval/loss".
std::map<std::string, double> tracked_names(const std::map<std::string, double>& values);

// The functions may take a long time and may throw Error. Trackers calls them on its own thread.
class Tracker {
 public:
  virtual ~Tracker() = default;
  virtual void log(const TrackedFigures& figures) = 0;
  // Writes the metrics that log() only collected. The class Trackers calls flush() when it has no more metrics to log.
  // If flush() throws, the tracker keeps the unwritten metrics for the next call.
  virtual void flush() {}
  virtual void finish(bool succeeded) = 0;
};

struct TrackerRow {
  std::string_view name;  // the value of report_to
  // Opens the run in the tracker. Throws Error.
  std::unique_ptr<Tracker> (*open)(const TrackedRun& run);
};
const std::vector<TrackerRow>& tracker_rows();

std::unique_ptr<Tracker> open_tensorboard(const TrackedRun& run);
std::unique_ptr<Tracker> open_wandb(const TrackedRun& run);
std::unique_ptr<Tracker> open_trackio(const TrackedRun& run);
std::unique_ptr<Tracker> open_mlflow(const TrackedRun& run);

}  // namespace fettle
