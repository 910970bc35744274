// Writes the log files of a run. trainer_state.json and *_results.json have the format of Hugging Face's Trainer.
// trainer_log.jsonl has the format of LLaMA-Factory. A resumed run continues trainer_state.json and trainer_log.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

// One entry of log_history. A training record has `loss`. An evaluation record has `eval_loss`, unless the loss is not
// finite and the record was read from a file.
struct LogRecord {
  int64_t step = 0;
  double epoch = 0;
  std::map<std::string, double> values;  // "loss", "grad_norm", "learning_rate", "eval_loss", "eval_runtime", ...
  bool is_evaluation() const;
};

// The content of trainer_state.json.
struct TrainerState {
  int64_t global_step = 0;
  int64_t max_steps = 0;
  double epoch = 0;
  int64_t num_train_epochs = 0;
  int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;
  int64_t train_batch_size = 0;  // per device
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::string best_model_checkpoint;  // empty when there is none
  std::vector<LogRecord> log_history;
};

std::string to_json(const TrainerState& state);
// Reads trainer_state.json. Missing fields keep their defaults; unknown fields are ignored. Throws UserError, which
// names the file and the field.
TrainerState read_trainer_state(const std::filesystem::path& file);
void write_trainer_state(const std::filesystem::path& file, const TrainerState& state);

// One line of trainer_log.jsonl.
struct ProgressRecord {
  int64_t current_steps = 0, total_steps = 0;
  std::optional<double> loss, eval_loss, lr, epoch;
  double elapsed_seconds = 0, remaining_seconds = 0;
  std::optional<double> throughput;  // tokens per second
  std::optional<int64_t> total_tokens;
  // The step from which this process continues the run. Only the first line of such a process has it.
  std::optional<int64_t> resumed_step = {};
  std::map<std::string, double> figures;  // other metrics: "grad_norm", "eval_accuracy", "rewards/margins", ...
};

// Returns the record as a line of JSON, without a newline. The line also has `percentage`, with two decimals. Times are
// in the form of format_duration. `resumed_step` and the entries of `figures` are fields of the line, too.
// LLaMA-Factory's own lines do not have these fields; programs that read such lines ignore unknown fields.
std::string to_json_line(const ProgressRecord& record);
// Returns "0:01:23" or "1 day, 0:01:23".
std::string format_duration(double seconds);
// Appends the lines, all of them or none. Throws UserError or DoesNotFit.
void append_progress(const std::filesystem::path& file, const std::vector<ProgressRecord>& records);
// Removes these lines from the file: lines of steps after `step`, a half-written last line, and lines that are not
// progress records. Does nothing when there is no file.
void cut_progress_after(const std::filesystem::path& file, int64_t step);

// Writes the metrics that are finite to SPLIT_results.json (train_results.json or eval_results.json). Also adds them to
// all_results.json, which keeps the entries of earlier calls. Keys are sorted and the indent is 4, as in
// Trainer.save_metrics.
void write_results(const std::filesystem::path& folder, const std::string& split,
                   const std::map<std::string, double>& metrics);

}  // namespace fettle
