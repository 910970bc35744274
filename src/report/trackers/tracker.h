// Defines Tracker: a place outside of the run's own logs that shows its figures, such as TensorBoard.
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

// What a tracker is told about the run at its start.
struct TrackedRun {
  std::string id;                     // 8 lower-case letters and digits; a resumed run has the id of its first start
  std::string name;                   // run_name, else the name of output_dir
  std::string project;                // groups runs
  std::filesystem::path folder;       // output_dir
  std::filesystem::path logging_dir;  // of TensorBoard; empty: runs/DATE_TIME in `folder`
  LocalTime started;                  // of the first start
  int64_t resumed_step = 0;           // steps after this one follow; records of later steps, if any, are obsolete
  nlohmann::json config;              // the recipe keys that were set, and their values
};

// Figures of one step, named as Hugging Face's callbacks name them: "train/loss", "eval/loss".
struct TrackedFigures {
  int64_t step = 0;
  double time = 0;  // seconds since 1970
  std::map<std::string, double> values;
};

// The functions may take long and throw Error: Trackers calls them on a thread of its own.
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
