// Defines RunLog: the metrics in trainer_log.jsonl as columns, read as the file grows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/folder_files.h"

namespace fettle {

// The quantities that can be the horizontal axis of a chart.
enum class LogAxis { kStep, kSeconds, kTokens, kEpoch };
// Returns nullopt for an unknown name; names are step, seconds, tokens and epoch.
std::optional<LogAxis> log_axis(std::string_view name);

// One line of the log.
struct LogRow {
  double step = 0;
  // Training time of the run so far, without the time between a stop and a resume. It includes the time of steps that
  // the run computed again, if their lines are in the log.
  double seconds = 0;
  double tokens = 0;
  double epoch = 0;
  double at(LogAxis axis) const;
};

// The values of one metric, in the order of the lines.
struct LogSeries {
  std::vector<uint32_t> rows;  // the lines that have the metric, as indices of RunLog::rows()
  std::vector<double> values;
};

// Damaged lines are counted and left out. Values that are not finite are left out. LLaMA-Factory appends to the log
// when a run is resumed, so its log may have some steps twice. The later line counts: when the step goes back, the rows
// of this step and of later ones are removed. So steps never decrease from row to row.
class RunLog {
 public:
  // kLast: rows() has only the last row, and each series only its last value. last() and the times are those of the
  // whole log, but little stays in memory. When the step goes back, series keep their last values.
  enum class Keep { kAll, kLast };
  explicit RunLog(Keep keep = Keep::kAll) : keep_(keep) {}

  // Reads what was appended to the file since the last call. The first call reads the whole file. If the file was
  // replaced or became shorter, forgets everything and reads it again. If a part cannot be read, the next call tries
  // again. Returns whether anything changed.
  bool update(const FolderFiles& files, std::string_view path);

  // Returns the state of the file whose whole content was read; another stamp if the last call could not read all.
  const FileStamp& stamp() const { return stamp_; }
  const std::vector<LogRow>& rows() const { return rows_; }
  // Keys are the names in the file: "loss", "lr", "grad_norm", "eval_loss". Steps, also resumed_step, epoch,
  // percentage, times and the number of tokens are not series.
  const std::map<std::string, LogSeries, std::less<>>& series() const { return series_; }
  int64_t total_steps() const { return total_steps_; }
  double seconds_left() const { return seconds_left_; }
  // Returns whether the last line has the last step.
  bool is_complete() const { return !rows_.empty() && rows_.back().step >= static_cast<double>(total_steps_); }
  int64_t damaged() const { return damaged_; }
  std::optional<double> last(std::string_view key) const;

 private:
  void take(std::string_view line);
  // Returns whether the last value of the figure is that of a row of this step.
  bool has_value_at(std::string_view key, double step) const;
  void forget_from(double step);
  void forget_all_but_last();

  Keep keep_;
  FileStamp stamp_;
  int64_t offset_ = 0;  // the end of the last complete line
  std::vector<LogRow> rows_;
  std::map<std::string, LogSeries, std::less<>> series_;
  int64_t total_steps_ = 0, damaged_ = 0;
  double seconds_left_ = 0, earlier_seconds_ = 0, process_seconds_ = 0;
};

}  // namespace fettle
