// Defines Recorder, which writes and shows the record of a run: trainer_log.jsonl, trainer_state.json, plots and
// progress lines.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "report/progress.h"
#include "report/run_record.h"
#include "report/trackers/trackers.h"
#include "run/run_length.h"
#include "step/evaluate.h"
#include "step/run_step.h"

namespace fettle {

// When a line cannot be written to trainer_log.jsonl, the recorder warns, keeps the line and writes it with the next
// one. Training continues.
class Recorder {
 public:
  // `resumed` is the record in the checkpoint from which the run continues, or an empty record. If `writes` is false,
  // the record is kept but not written to files or trackers, because another process of the run does that.
  Recorder(const Run& run, const RunLength& length, const ProgressOptions& shown, RunRecord resumed,
           bool writes = true);

  void start_step() { progress_.start_step(); }
  void step(const StepOutcome& outcome, const Batch& batch, int64_t step, double flops, bool warm);
  // `bytes` returns the largest number of bytes that one device has had in use so far; 0 if the number is not known.
  void measure_memory(std::function<int64_t()> bytes) { device_memory_ = std::move(bytes); }
  void saved(double seconds_waited) { save_stall_ += seconds_waited; }
  // Records that gradients of `step` overflowed. The step runs again with `loss_scale`.
  void overflow(int64_t step, double loss_scale);
  // Records an evaluation after `step`. With BestSpec::used(), expects that the step is then saved as the recipe asks.
  // Warns if the run's first evaluation lacks the metric by which the best one is chosen.
  void evaluation(const Evaluation& evaluation, int64_t step);
  // Records that a signal ended the evaluation after the last step, so that a resumed run begins with it.
  void evaluation_ended() { record_.evaluation_due = true; }
  // Records that this checkpoint could not be written, so that it is not the best one.
  void not_saved(const std::filesystem::path& checkpoint);
  // Sets the figures of eval_results.json, if the result has other weights than the last evaluation measured.
  void result_evaluation(const Evaluation& evaluation);
  const RunRecord& record() const { return record_; }
  // Returns whether the current step is to be saved: as the recipe asks, and when the run ends early. With
  // save_strategy: best, whether its evaluation is better than those of all checkpoints.
  bool saves() const;
  // Returns whether the run must end because the last evaluations were not better (early_stopping_patience).
  bool ends_early() const { return run_.best.ends_after(not_better_); }
  // Writes trainer_state.json, train_results.json, eval_results.json, all_results.json and the plots into `folder`.
  void write(const std::filesystem::path& folder);
  // Prints the final metrics and ends the run in the trackers. Warns when lines could not be written to
  // trainer_log.jsonl.
  void finish();

 private:
  std::map<std::string, double> results() const;
  // Returns the metrics of the last evaluation with its epoch, and `eval_step` if further steps followed it. Empty when
  // there is none.
  std::map<std::string, double> evaluation_results() const;
  std::map<std::string, double> memory_figures() const;
  void note_best();
  void warn_of_no_metric() const;
  void log(LogRecord record, ProgressRecord line);
  void write_lines();

  const Run& run_;
  const RunLength& length_;
  std::filesystem::path folder_;
  RunRecord record_;
  bool writes_;
  Progress progress_;
  Trackers trackers_;
  std::function<int64_t()> device_memory_;
  std::vector<ProgressRecord> unwritten_;  // lines that could not be written yet
  std::optional<int64_t> resumed_step_;    // of the first line, until it is logged
  int64_t not_better_ = 0;                 // BestEvaluation::not_better
  int64_t steps_here_ = 0;                 // steps that this process did
  int64_t sequences_here_ = 0;             // sequences of these steps; with packing, documents
  double save_stall_ = 0;                  // seconds that training waited for checkpoints
  double seconds_ = 0;                     // runtime of this process when write() was called
  // The last evaluation, also of the part of the run before it was resumed. Empty when there is none, and when this run
  // evaluates nothing: an older evaluation then measured another state of the model.
  LogRecord last_evaluation_;
};

}  // namespace fettle
