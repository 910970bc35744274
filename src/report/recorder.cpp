#include "report/recorder.h"

#include <cmath>

#include "base/log.h"
#include "report/plot.h"

namespace fettle {
namespace {

TrainerState initial_state(const Run& run, const RunLength& length, const std::filesystem::path& resumed) {
  TrainerState state;
  if (!resumed.empty()) state = read_trainer_state(resumed);
  state.max_steps = length.total_steps;
  state.num_train_epochs = static_cast<int64_t>(std::ceil(length.epoch(length.total_steps)));
  state.logging_steps = length.logging_steps;
  state.eval_steps = length.eval_every;
  state.save_steps = length.save_every;
  state.train_batch_size = run.rows_per_device;
  return state;
}

}  // namespace

Recorder::Recorder(const Run& run, const RunLength& length, const ProgressOptions& shown,
                   const std::filesystem::path& resumed)
    : run_(run),
      length_(length),
      folder_(run.output.folder),
      state_(initial_state(run, length, resumed)),
      progress_(shown) {
  cut_progress_after(folder_ / "trainer_log.jsonl", state_.global_step);
}

void Recorder::log(LogRecord record, const ProgressRecord& line) {
  record.step = state_.global_step;
  record.epoch = state_.epoch;
  state_.log_history.push_back(std::move(record));
  append_progress(folder_ / "trainer_log.jsonl", line);
}

void Recorder::step(const StepOutcome& outcome, const Batch& batch, int64_t step, int64_t flops, bool warm) {
  const double scheduled = run_.update.learning_rate * length_.schedule.multiplier(step - 1);
  const double rate = run_.optimizer.scalars(step, scheduled).at("learning_rate");
  progress_.finish_step({.step = step,
                         .epoch = length_.epoch(step),
                         .loss = outcome.loss,
                         .learning_rate = rate,
                         .grad_norm = outcome.grad_norm,
                         .real_tokens = batch.real_tokens,
                         .flops = flops,
                         .warm = warm});
  loss_sum_ += outcome.loss;
  total_loss_ += outcome.loss;
  for (const auto& [name, value] : outcome.metrics) {
    metric_sums_[name].first += value;
    ++metric_sums_[name].second;
  }
  ++loss_steps_;
  ++total_steps_;
  state_.global_step = step;
  state_.epoch = length_.epoch(step);
  state_.num_input_tokens_seen += batch.real_tokens;
  state_.total_flos += static_cast<double>(flops);
  if (!length_.logs_after(step)) return;
  const double loss = loss_sum_ / static_cast<double>(loss_steps_);
  std::map<std::string, double> values{{"loss", loss}, {"grad_norm", outcome.grad_norm}, {"learning_rate", rate}};
  for (const auto& [name, sum] : metric_sums_) values[name] = sum.first / static_cast<double>(sum.second);
  metric_sums_.clear();
  log({.values = std::move(values)}, {.current_steps = step,
                                      .total_steps = length_.total_steps,
                                      .loss = loss,
                                      .lr = rate,
                                      .epoch = state_.epoch,
                                      .elapsed_seconds = progress_.elapsed_seconds(),
                                      .remaining_seconds = progress_.seconds_left(),
                                      .throughput = progress_.tokens_per_second(),
                                      .total_tokens = state_.num_input_tokens_seen});
  progress_.mark();
  loss_sum_ = 0;
  loss_steps_ = 0;
}

void Recorder::overflow(int64_t step, double loss_scale) {
  ++overflows_;
  info("step {}: gradients overflowed float16; the step runs again with the loss scale {}", step, loss_scale);
}

void Recorder::evaluation(const Evaluation& evaluation, int64_t step) {
  last_evaluation_ = evaluation;
  if (evaluation.figures.empty()) {
    info("eval at step {}: loss {:.4f}, perplexity {:.3f}, token accuracy {:.1f}%", step, evaluation.loss,
         evaluation.perplexity, 100 * evaluation.accuracy);
  } else {
    std::string text;
    for (const auto& [name, value] : evaluation.figures) text += fmt::format(", {} {:.4g}", name, value);
    info("eval at step {}: loss {:.4f}{}", step, evaluation.loss, text);
  }
  log({.values = evaluation.metrics()}, {.current_steps = step,
                                         .total_steps = length_.total_steps,
                                         .eval_loss = evaluation.loss,
                                         .epoch = state_.epoch,
                                         .elapsed_seconds = progress_.elapsed_seconds(),
                                         .remaining_seconds = progress_.seconds_left()});
}

std::map<std::string, double> Recorder::results() const {
  std::map<std::string, double> out{
      {"epoch", state_.epoch},
      {"train_loss", total_loss_ / std::max<double>(1, static_cast<double>(total_steps_))},
      {"train_runtime", seconds_},
      {"total_flos", state_.total_flos},
      {"num_input_tokens_seen", static_cast<double>(state_.num_input_tokens_seen)}};
  if (save_stall_ > 0) out["save_stall_seconds"] = save_stall_;
  if (run_.scales_loss()) out["loss_scale_overflows"] = static_cast<double>(overflows_);
  if (seconds_ > 0) out["train_steps_per_second"] = static_cast<double>(total_steps_) / seconds_;
  return out;
}

void Recorder::write(const std::filesystem::path& folder) {
  seconds_ = progress_.elapsed_seconds();
  write_trainer_state(folder / "trainer_state.json", state_);
  write_results(folder, "train", results());
  if (last_evaluation_) write_results(folder, "eval", last_evaluation_->metrics());
  if (run_.output.plot_loss)
    write_loss_plot(folder / "training_loss",
                    loss_curves(state_.log_history, "training loss of " + folder_.filename().string()));
}

void Recorder::finish() const {
  info("{}", format_metrics("train", results()));
  if (last_evaluation_) info("{}", format_metrics("eval", last_evaluation_->metrics()));
}

void announce(const Run& run, const RunLength& length, const Batches& batches, const DataReport& data,
              int64_t resumed_step, const std::string& devices) {
  for (const std::string& note : data.notes) info("data: {}", note);
  if (!data.labels.empty()) info("labels: {}", data.labels);
  if (data.truncated > 0)
    info("data: {} of {} rows were cut to cutoff_len {}", data.truncated, data.rows, run.data.cutoff_len);
  if (data.dropped + data.bad_rows > 0) info("data: {} rows were left out", data.dropped + data.bad_rows);
  info("batches: {}", format_batches(batches, " an epoch"));
  const int64_t accumulation = run.batch.micro_batches;
  info("{}", format_banner({.examples = batches.examples(),
                            .epochs = length.epoch(length.total_steps),
                            .batch_per_device = run.rows_per_device,
                            .total_batch = run.rows_per_micro_batch() * accumulation,
                            .accumulation = accumulation,
                            .total_steps = length.total_steps,
                            .trainable_parameters = run.count(run.trained),
                            .all_parameters = run.count(run.trained) + run.count(run.frozen),
                            .resumed_step = resumed_step,
                            .devices = devices}));
}

}  // namespace fettle
