// Defines Tracker: a tool besides the run's own logs that shows its figures, such as TensorBoard.
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

// What a tracker gets to know about a run at its start.
struct TrackedRun {
  std::string id;                     // 8 lower-case letters and digits; a resumed run has the id of its first start
  std::string name;                   // run_name, else the name of output_dir
  std::string project;                // groups runs
  std::filesystem::path folder;       // output_dir
  std::filesystem::path logging_dir;  // folder of TensorBoard's files; empty: runs/DATE_TIME in `folder`
  LocalTime started;                  // the run's first start
  int64_t resumed_step =
      0;  // the last step so far; earlier records of later steps are obsolete, because the run computes them again
  nlohmann::json config;  // the recipe keys that were set, and their values
};

// Figures of one step, named as Hugging Face's callbacks name them: "train/loss", "eval/loss".
struct TrackedFigures {
  int64_t step = 0;
  double time = 0;  // seconds since 1970
  std::map<std::string, double> values;
};

// The functions may take long and may throw Error. Trackers calls them on a separate thread.
class Tracker {
 public:
  virtual ~Tracker() = default;
  virtual void log(const TrackedFigures& figures) = 0;
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

}  // namespace fettle
