// Defines Recorder: the written and shown record of a run (trainer_log.jsonl, trainer_state.json, plot, lines).
#pragma once

#include <filesystem>
#include <optional>

#include "data/dataset.h"
#include "report/progress.h"
#include "report/run_record.h"
#include "run/run_length.h"
#include "step/evaluate.h"
#include "step/state/train_state.h"

namespace fettle {

// A line that trainer_log.jsonl does not take is kept and written with the next one; a warning says so. Training goes
// on.
class Recorder {
 public:
  // `resumed`: the checkpoint's record, which is continued; empty at the start of a run.
  Recorder(const Run& run, const RunLength& length, const ProgressOptions& shown, RunRecord resumed);

  void start_step() { progress_.start_step(); }
  void step(const StepOutcome& outcome, const Batch& batch, int64_t step, int64_t flops, bool warm);
  void saved(double seconds_waited) { save_stall_ += seconds_waited; }
  // Gradients of `step` overflowed; it is run again with `loss_scale`.
  void overflow(int64_t step, double loss_scale);
  void evaluation(const Evaluation& evaluation, int64_t step);
  const RunRecord& record() const { return record_; }
  // Writes trainer_state.json, all_results.json and the plots into `folder`.
  void write(const std::filesystem::path& folder);
  // Says the run's figures, and warns of lines that trainer_log.jsonl never took.
  void finish();

 private:
  std::map<std::string, double> results() const;
  void log(LogRecord record, const ProgressRecord& line);
  void write_lines();

  const Run& run_;
  const RunLength& length_;
  std::filesystem::path folder_;
  RunRecord record_;
  Progress progress_;
  std::vector<ProgressRecord> unwritten_;          // lines that trainer_log.jsonl did not take yet
  int64_t steps_here_ = 0;                         // of this process
  double save_stall_ = 0;                          // seconds that training waited for checkpoints
  double seconds_ = 0;                             // of this process, when its figures were written
  std::map<std::string, double> last_evaluation_;  // its metrics; empty: there was none
};

// The start banner and what the data report has to say.
void announce(const Run& run, const RunLength& length, const Batches& batches, const DataReport& data,
              int64_t resumed_step, const std::string& devices);

}  // namespace fettle
