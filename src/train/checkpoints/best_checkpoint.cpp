#include "train/checkpoints/best_checkpoint.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "eval/classification_report.h"
#include "report/best_evaluation.h"
#include "train/result.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the folder with the checkpoint's exact weights.
fs::path exact_weights(const fs::path& checkpoint) {
  std::error_code ignored;
  const fs::path alone = weights_folder(checkpoint);
  return fs::is_directory(alone, ignored) ? alone : state_folder(checkpoint);
}

// Returns the names of the metrics that an evaluation of this run has, without "eval_".
std::vector<std::string> figure_names(const Run& run) {
  std::vector<std::string> names{"loss"};
  std::map<std::string, double> figures;
  if (run.labels()) {
    ClassificationReport report;
    report.problem = run.labels()->problem;
    figures = report.figures();
  } else if (run.stage->metrics != nullptr) {
    figures = run.stage->metrics(run.keys, std::vector<float>(static_cast<size_t>(run.stage->metric_sums), 1));
  } else {
    figures = {{"perplexity", 0}, {"accuracy", 0}};
  }
  for (const auto& [name, value] : figures) names.push_back(name);
  return names;
}

}  // namespace

void check_best(const Run& run, const RunLength& length) {
  if (!run.best.used()) return;
  const std::string name = run.best.metric.substr(5);
  if (const std::vector<std::string> names = figure_names(run); std::ranges::find(names, name) == names.end())
    throw UserError("{}: metric_for_best_model: evaluations have no metric '{}'; use one of {}",
                    run.places.of("metric_for_best_model"), name, fmt::join(names, ", "));
  if (!run.best.load_at_end || run.best.save || length.save_every % length.eval_every == 0 ||
      length.eval_every % length.save_every == 0)
    return;
  constexpr const char* kLoadBest = "load_best_model_at_end";
  const std::string intervals =
      fmt::format("an evaluation every {} steps and a checkpoint every {} steps", length.eval_every, length.save_every);
  if (!run.places.of_tool(kLoadBest))
    throw UserError(
        "{}: load_best_model_at_end needs evaluations and checkpoints at the same steps, but there is {}; make one a "
        "multiple of the other, or set save_strategy: best",
        run.places.of(kLoadBest), intervals);
  warn(
      "{}: there is {}, so the result is the best of the evaluations that have a checkpoint; set save_strategy: best "
      "to get the best of all evaluations",
      run.places.of(kLoadBest), intervals);
}

void note_held_out(const Examples& held_out, RunRecord& record) {
  const std::string digest = held_out.digest();
  const std::span<const LogRecord> log = record.comparable_log();
  if (!record.held_out.empty() && record.held_out != digest && std::ranges::any_of(log, &LogRecord::is_evaluation)) {
    record.first_comparable = record.trainer.log_history.size();
    warn(
        "the held-out rows have changed since the checkpoint of step {} was written: earlier evaluations are not "
        "compared with those of this run, so its best evaluation is one of the new ones",
        record.trainer.global_step);
  }
  record.held_out = digest;
}

std::string early_end_text(const Run& run, const TrainerState& record) {
  if (!record.best_metric)
    return fmt::format("stopped at step {}: no evaluation had a finite {}", record.global_step, run.best.metric);
  return fmt::format("stopped at step {}: {} was not better than {:.4f} (step {}) in {} evaluations",
                     record.global_step, run.best.metric, *record.best_metric, record.best_global_step.value_or(0),
                     run.best.patience);
}

void find_best(const Run& run, const fs::path& resumed, RunRecord& record) {
  if (!run.best.used()) return;
  const fs::path recorded = record.trainer.best_model_checkpoint;
  std::error_code ignored;
  const auto is_there = [&](const fs::path& checkpoint) {
    return fs::is_directory(run.best.load_at_end ? exact_weights(checkpoint) : checkpoint, ignored);
  };
  const auto place_of = [&](int64_t step) -> fs::path {
    const fs::path beside = step == record.trainer.global_step ? resumed : checkpoint_path(resumed.parent_path(), step);
    // The other functions compare paths as text, so the spelling of output_dir is the one that counts.
    const fs::path here = checkpoint_path(run.output.folder, step);
    if (is_there(beside)) return fs::equivalent(beside, here, ignored) ? here : beside;
    return recorded.filename() == here.filename() ? recorded : fs::path();
  };
  for (const LogRecord& entry : record.comparable_log())
    if (const fs::path place = entry.is_evaluation() ? place_of(entry.step) : fs::path(); !place.empty())
      record.checkpoints[entry.step] = place.string();
  choose_best_checkpoint(record, run.best);
  const fs::path best = record.trainer.best_model_checkpoint;
  if (run.best.load_at_end && !best.empty() && !is_there(best))
    throw UserError(
        "{}: load_best_model_at_end: the best checkpoint so far is missing: it is neither {} nor {}; put it back, or "
        "set load_best_model_at_end: false",
        run.places.of("load_best_model_at_end"), (resumed.parent_path() / best.filename()).string(), best.string());
}

bool load_best(Devices& devices, const Run& run, const ModelRepository& repository, const TrainerState& record,
               TrainState& state) {
  if (record.best_model_checkpoint.empty()) {
    warn(
        "load_best_model_at_end: no evaluation with a finite {} has a checkpoint, so the result has the weights of the "
        "last step",
        run.best.metric);
    return false;
  }
  const fs::path checkpoint = record.best_model_checkpoint;
  if (checkpoint == checkpoint_path(run.output.folder, state.step)) return false;
  try {
    StateReader reader(exact_weights(checkpoint));
    state = {};  // frees the memory of the last state first
    state = load_state(devices, run, repository, reader, result_arrays(run));
  } catch (const UserError& error) {
    const auto newest = newest_checkpoint(run.output.folder);
    throw UserError("load_best_model_at_end: the best evaluation's checkpoint cannot be read: {}{}", error.what(),
                    newest ? fmt::format("; to use the weights of step {} instead, set load_best_model_at_end: false "
                                         "and resume_from_checkpoint: {}",
                                         newest->step, newest->path.string())
                           : "");
  }
  info("the result has the weights of {}, the checkpoint with the best {}", checkpoint.string(), run.best.metric);
  return true;
}

}  // namespace fettle
