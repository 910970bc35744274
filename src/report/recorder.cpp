#include "report/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/files/cache.h"
#include "base/files/run_files.h"
#include "base/limits/host_memory.h"
#include "base/log.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "report/banner.h"
#include "report/best_evaluation.h"
#include "report/plot.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

RunRecord initial_record(const Run& run, const RunLength& length, RunRecord record) {
  TrainerState& state = record.trainer;
  state.max_steps = length.total_steps;
  state.num_train_epochs = static_cast<int64_t>(std::ceil(length.epoch(length.total_steps)));
  state.logging_steps = length.logging_steps;
  state.eval_steps = length.eval_every;
  state.save_steps = length.save_every;
  state.train_batch_size = run.rows_per_device;
  record.evaluation_due = record.evaluation_due && length.evaluates_after(state.global_step);
  return record;
}

// Returns the metrics that trackers get of a record.
TrackedFigures tracked_figures(const LogRecord& record) {
  TrackedFigures out{.step = record.step, .values = record.values};
  out.values["epoch"] = record.epoch;
  return out;
}

std::vector<TrackedFigures> tracked_figures(const std::vector<LogRecord>& records) {
  std::vector<TrackedFigures> out;
  for (const LogRecord& record : records) out.push_back(tracked_figures(record));
  return out;
}

// Returns the facts that trackers get about the run. `record` is the record that the run continues.
TrackedRun tracked_run(const Run& run, const RunRecord& record) {
  const fs::path folder = fs::weakly_canonical(run.output.folder);
  ContentKey id;
  id.add(record.started.text()).add(folder.string());
  return {.id = id.text().substr(0, 8),
          .name = run.output.run_name.empty() ? folder.filename().string() : run.output.run_name,
          .project = run.output.project,
          .folder = run.output.folder,
          .logging_dir = run.output.logging_dir,
          .started = record.started,
          .resumed_step = record.trainer.global_step,
          .earlier = tracked_figures(record.trainer.log_history),
          .config = nlohmann::json::parse(run.output.changed_keys)};
}

LogRecord last_evaluation(const TrainerState& state) {
  LogRecord last;
  for (const LogRecord& record : state.log_history)
    if (record.is_evaluation()) last = record;
  return last;
}

// Returns the metrics of a step that its progress line shows: how well the model tells good replies from bad ones.
std::map<std::string, double> shown_figures(const std::map<std::string, double>& metrics) {
  std::map<std::string, double> out;
  for (const char* name : {"rewards/accuracies", "rewards/margins", "accuracy", "margin"})
    if (const auto found = metrics.find(name); found != metrics.end()) out.insert(*found);
  return out;
}

}  // namespace

Recorder::Recorder(const Run& run, const RunLength& length, const ProgressOptions& shown, RunRecord resumed,
                   bool writes)
    : run_(run),
      length_(length),
      folder_(run.output.folder),
      record_(initial_record(run, length, std::move(resumed))),
      writes_(writes),
      progress_(shown),
      trackers_(writes ? run.output.report_to : decltype(run.output.report_to){}, tracked_run(run, record_)),
      last_evaluation_(length.eval_every > 0 ? last_evaluation(record_.trainer) : LogRecord{}) {
  if (record_.trainer.global_step > 0) resumed_step_ = record_.trainer.global_step;
  if (writes_) cut_progress_after(folder_ / kProgressLog, record_.trainer.global_step);
  note_best();
}

void Recorder::log(LogRecord record, ProgressRecord line) {
  record.step = record_.trainer.global_step;
  record.epoch = record_.trainer.epoch;
  record_.trainer.log_history.push_back(std::move(record));
  std::map<std::string, double> figures = tracked_figures(record_.trainer.log_history.back()).values;
  trackers_.log(record_.trainer.global_step, figures);
  // ProgressRecord has members of its own for these metrics.
  for (const char* own : {"loss", "eval_loss", "learning_rate", "epoch"}) figures.erase(own);
  line.figures.merge(figures);
  line.resumed_step = std::exchange(resumed_step_, std::nullopt);
  if (writes_) unwritten_.push_back(std::move(line));
  write_lines();
}

void Recorder::write_lines() {
  if (unwritten_.empty()) return;
  const size_t waiting = unwritten_.size();
  try {
    append_progress(folder_ / kProgressLog, unwritten_);
    unwritten_.clear();
    if (waiting > 1) info("trainer_log.jsonl can be written again; it now also has the {} earlier lines", waiting - 1);
  } catch (const Error& error) {
    if (waiting == 1) warn("{}; this line is written with the next one, and training continues", error.what());
  }
}

void Recorder::step(const StepOutcome& outcome, const Batch& batch, int64_t step, double flops, bool warm) {
  const double scheduled = run_.update.learning_rate * length_.schedule.multiplier(step - 1);
  const double rate = run_.optimizer.scalars(step, scheduled).at("learning_rate");
  progress_.finish_step({.step = step,
                         .epoch = length_.epoch(step),
                         .loss = outcome.loss,
                         .learning_rate = rate,
                         .grad_norm = outcome.grad_norm,
                         .figures = shown_figures(outcome.metrics),
                         .real_tokens = batch.real_tokens,
                         .flops = flops,
                         .warm = warm});
  LogSums& sums = record_.sums;
  sums.loss += outcome.loss;
  sums.total_loss += outcome.loss;
  for (const auto& [name, value] : outcome.metrics) {
    sums.metrics[name].first += value;
    ++sums.metrics[name].second;
  }
  ++sums.steps;
  ++sums.total_steps;
  ++steps_here_;
  sequences_here_ += std::ssize(batch.sources) - std::ranges::count(batch.sources, "");
  record_.trainer.global_step = step;
  record_.trainer.epoch = length_.epoch(step);
  record_.trainer.num_input_tokens_seen += batch.real_tokens;
  record_.trainer.total_flos += flops;
  if (!length_.logs_after(step)) return;
  const double loss = sums.loss / static_cast<double>(sums.steps);
  std::map<std::string, double> values{{"loss", loss}, {"grad_norm", outcome.grad_norm}, {"learning_rate", rate}};
  for (const auto& [name, sum] : sums.metrics) values[name] = sum.first / static_cast<double>(sum.second);
  log({.values = std::move(values)}, {.current_steps = step,
                                      .total_steps = length_.total_steps,
                                      .loss = loss,
                                      .lr = rate,
                                      .epoch = record_.trainer.epoch,
                                      .elapsed_seconds = progress_.elapsed_seconds(),
                                      .remaining_seconds = progress_.seconds_left(),
                                      .throughput = progress_.tokens_per_second(),
                                      .total_tokens = record_.trainer.num_input_tokens_seen,
                                      .figures = memory_figures()});
  progress_.mark();
  sums.loss = 0;
  sums.steps = 0;
  sums.metrics.clear();
}

std::map<std::string, double> Recorder::memory_figures() const {
  std::map<std::string, double> out;
  if (const int64_t host = resident_bytes(); host > 0) out["host_memory_bytes"] = static_cast<double>(host);
  const int64_t device = device_memory_ ? device_memory_() : 0;
  if (device > 0) out["device_memory_bytes"] = static_cast<double>(device);
  return out;
}

void Recorder::overflow(int64_t step, double loss_scale) {
  ++record_.sums.overflows;
  info("step {}: gradients overflowed float16; the step runs again with the loss scale {}", step, loss_scale);
}

void Recorder::evaluation(const Evaluation& evaluation, int64_t step) {
  last_evaluation_ = {.step = step, .values = evaluation.metrics()};
  if (evaluation.figures.empty()) {
    info("eval at step {}: loss {:.4f}, perplexity {:.3f}, token accuracy {:.1f}%", step, evaluation.loss,
         evaluation.perplexity, 100 * evaluation.accuracy);
  } else {
    std::string text;
    for (const auto& [name, value] : evaluation.figures) text += fmt::format(", {} {:.4g}", name, value);
    info("eval at step {}: loss {:.4f}{}", step, evaluation.loss, text);
  }
  log({.values = last_evaluation_.values}, {.current_steps = step,
                                            .total_steps = length_.total_steps,
                                            .eval_loss = evaluation.loss,
                                            .epoch = record_.trainer.epoch,
                                            .elapsed_seconds = progress_.elapsed_seconds(),
                                            .remaining_seconds = progress_.seconds_left()});
  record_.evaluation_due = false;
  note_best();
  if (!run_.best.used()) return;
  if (!record_.trainer.best_metric && not_better_ == 0) warn_of_no_metric();  // once: at the first evaluation
  const std::string checkpoint = checkpoint_path(folder_, step).string();
  if (run_.best.save || saves()) record_.checkpoints[step] = checkpoint;
  choose_best_checkpoint(record_, run_.best);
  if (run_.best.save && record_.trainer.best_model_checkpoint != checkpoint) record_.checkpoints.erase(step);
}

void Recorder::warn_of_no_metric() const {
  const bool margins = run_.best.metric == "eval_rewards/margins";
  warn(
      "metric_for_best_model: the evaluation at step {} has no finite {}{}; such an evaluation is never the best one{}",
      record_.trainer.global_step, run_.best.metric,
      margins ? ", which needs held-out rows of both kinds, good and bad" : "",
      run_.best.save ? ", and save_strategy: best saves no checkpoint after it" : "");
}

bool Recorder::saves() const {
  const int64_t step = record_.trainer.global_step;
  if (run_.best.save) return record_.checkpoints.contains(step);
  return length_.saves_after(step) || (length_.save_every > 0 && ends_early());
}

void Recorder::not_saved(const std::filesystem::path& checkpoint) {
  const auto of_it = [&](const auto& entry) { return entry.second == checkpoint.string(); };
  if (std::erase_if(record_.checkpoints, of_it) > 0) choose_best_checkpoint(record_, run_.best);
}

void Recorder::result_evaluation(const Evaluation& evaluation) {
  last_evaluation_ = {.step = record_.trainer.global_step, .values = evaluation.metrics()};
}

std::map<std::string, double> Recorder::evaluation_results() const {
  std::map<std::string, double> out = last_evaluation_.values;
  if (out.empty()) return out;
  out["epoch"] = length_.epoch(last_evaluation_.step);
  if (last_evaluation_.step != record_.trainer.global_step)
    out["eval_step"] = static_cast<double>(last_evaluation_.step);
  return out;
}

void Recorder::note_best() {
  if (!run_.best.used()) return;
  TrainerState& state = record_.trainer;
  const BestEvaluation best = best_evaluation(record_.comparable_log(), run_.best);
  not_better_ = best.not_better;
  state.best_global_step = best.value ? std::optional(best.step) : std::nullopt;
  state.best_metric = best.value;
}

std::map<std::string, double> Recorder::results() const {
  std::map<std::string, double> out{
      {"epoch", record_.trainer.epoch},
      {"train_loss", record_.sums.total_loss / std::max<double>(1, static_cast<double>(record_.sums.total_steps))},
      {"train_runtime", seconds_},
      {"total_flos", record_.trainer.total_flos},
      {"num_input_tokens_seen", static_cast<double>(record_.trainer.num_input_tokens_seen)}};
  if (save_stall_ > 0) out["save_stall_seconds"] = save_stall_;
  if (run_.scales_loss()) out["loss_scale_overflows"] = static_cast<double>(record_.sums.overflows);
  if (seconds_ > 0) {
    out["train_steps_per_second"] = static_cast<double>(steps_here_) / seconds_;
    const auto rows = static_cast<double>(sequences_here_) / static_cast<double>(run_.stage->sequences_per_row());
    out["train_samples_per_second"] = rows / seconds_;
  }
  return out;
}

void Recorder::write(const std::filesystem::path& folder) {
  seconds_ = progress_.elapsed_seconds();
  write_trainer_state(folder / "trainer_state.json", record_.trainer);
  if (const auto figures = evaluation_results(); !figures.empty()) write_results(folder, "eval", figures);
  write_results(folder, "train", results());  // the last one: all_results.json has the epoch of the result
  if (run_.output.plot_loss)
    write_loss_plot(folder / "training_loss",
                    loss_curves(record_.trainer.log_history, "training loss of " + folder_.filename().string()));
}

void Recorder::finish() {
  write_lines();
  if (!unwritten_.empty())
    warn("trainer_log.jsonl lacks its last {} lines; trainer_state.json has them", unwritten_.size());
  info("{}", format_metrics("train", results()));
  if (const auto figures = evaluation_results(); !figures.empty()) info("{}", format_metrics("eval", figures));
  trackers_.log(record_.trainer.global_step, results());
  trackers_.finish();
}

}  // namespace fettle
