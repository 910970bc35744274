// Defines Recorder, which writes and shows the record of a run: trainer_log.jsonl, trainer_state.json, plots, lines.
#pragma once

#include <filesystem>
#include <optional>

#include "data/dataset.h"
#include "report/log_files.h"
#include "report/progress.h"
#include "run/run_length.h"
#include "step/evaluate.h"
#include "step/state/train_state.h"

namespace fettle {

class Recorder {
 public:
  // `resumed` is the checkpoint's trainer_state.json, whose log the new one continues.
  Recorder(const Run& run, const RunLength& length, const ProgressOptions& shown, const std::filesystem::path& resumed);

  void start_step() { progress_.start_step(); }
  void step(const StepOutcome& outcome, const Batch& batch, int64_t step, int64_t flops, bool warm);
  void saved(double seconds_waited) { save_stall_ += seconds_waited; }
  // Records that gradients of `step` overflowed and that it runs again with `loss_scale`.
  void overflow(int64_t step, double loss_scale);
  void evaluation(const Evaluation& evaluation, int64_t step);
  const TrainerState& trainer_state() const { return state_; }
  // Writes trainer_state.json, all_results.json and the plots into `folder`.
  void write(const std::filesystem::path& folder);
  // Prints the figures of the run.
  void finish() const;

 private:
  std::map<std::string, double> results() const;
  void log(LogRecord record, const ProgressRecord& line);

  const Run& run_;
  const RunLength& length_;
  std::filesystem::path folder_;
  TrainerState state_;
  Progress progress_;
  double loss_sum_ = 0, total_loss_ = 0;                           // since the last log record; since the start
  std::map<std::string, std::pair<double, int64_t>> metric_sums_;  // sum and number of steps since the last log record
  int64_t loss_steps_ = 0, total_steps_ = 0;
  double save_stall_ = 0;  // seconds that training waited for checkpoints
  int64_t overflows_ = 0;
  double seconds_ = 0;  // duration of the run when its figures were written
  std::optional<Evaluation> last_evaluation_;
};

// Prints the start banner and the remarks of the data report.
void announce(const Run& run, const RunLength& length, const Batches& batches, const DataReport& data,
              int64_t resumed_step, const std::string& devices);

}  // namespace fettle
