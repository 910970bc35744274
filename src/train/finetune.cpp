// The page: a run from recipe to result, each stage called once, in order.
#include "train/finetune.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "checkpoint/atomic_folder.h"
#include "data/dataset.h"
#include "plan/mesh_choice.h"
#include "report/recorder.h"
#include "step/evaluate.h"
#include "step/memory_table.h"
#include "step/step_programs.h"
#include "tokenizer/tokenizer.h"
#include "train/save.h"

namespace fettle {
namespace {

BatchOptions batch_options(const Job& job, const Tokenizer& tokenizer) {
  const Recipe& r = job.recipe;
  return {.micro_batches = r.gradient_accumulation_steps,
          .rows = job.rows_per_micro_batch(),
          .max_length = r.cutoff_len,
          .packing = r.packing,
          .shuffle = !r.disable_shuffling,
          .seed = static_cast<uint64_t>(r.seed),
          .pad_id = tokenizer.pad_id().value_or(0)};
}

[[noreturn]] void stop_not_finite(Devices& devices, const Job& job, TrainState& state, const Batch& batch,
                                  const StepOutcome& outcome) {
  std::vector<std::string> rows = rows_not_finite(devices, job, state, batch);
  const std::string what = rows.empty() ? "no row's loss alone; the step's rows are" : "the loss of";
  if (rows.empty()) rows = batch.sources;
  const auto kept = newest_checkpoint(job.recipe.output_dir);
  throw UserError(
      "step {}: loss {}, gradient norm {}: not finite in {} {}. The weights were not changed; {}. Look at those "
      "rows, or lower learning_rate (now {}) and resume",
      state.step + 1, outcome.loss, outcome.grad_norm, what, fmt::join(rows, ", "),
      kept ? "the last good checkpoint is " + kept->path.string() : "no checkpoint was saved yet",
      job.recipe.learning_rate);
}

std::optional<CheckpointFolder> checkpoint_to_resume(const Recipe& recipe) {
  if (recipe.resume_from_checkpoint.empty()) return std::nullopt;
  const auto found = find_checkpoint(recipe.output_dir, recipe.resume_from_checkpoint);
  if (!found) info("no checkpoint in {} yet: starting afresh", recipe.output_dir);
  return found;
}

void write_root(const Job& job, const ModelRepository& repository, const TrainState& state, const Recorder& recorder) {
  AtomicFolder root(job.recipe.output_dir, AtomicFolder::Existing::kMerge);
  write_result(root.path(), job, repository, state);
  recorder.write(root.path());
  root.commit();
}

}  // namespace

int finetune(const Recipe& asked) {
  require_keys(asked, {"model_name_or_path", "dataset", "output_dir"}, "train");
  const InterruptScope interrupts;

  // What the recipe asks for, checked before any weight is read.
  const ModelRepository repository =
      ModelRepository::open(asked.model_name_or_path, asked.train_from_scratch ? ModelRepository::Weights::kIgnored
                                                                               : ModelRepository::Weights::kRequired);
  const ConfigFile config{repository.config(), (repository.folder() / "config.json").string()};
  Devices devices(asked);
  const Recipe recipe = settle_mesh(asked, config, devices);
  const Job job = make_job(recipe, config.json, config.file, devices.count());
  const auto resume = checkpoint_to_resume(recipe);
  prepare_output(job, resume.has_value());

  // Rows become batches.
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const Datasets data = load_datasets(recipe, tokenizer, job.model.config.vocab_size);
  const Batches batches(data.train, batch_options(job, tokenizer));
  const RunLength run = run_length(recipe, batches.steps_per_epoch());
  announce(job, run, batches, data.report, resume ? resume->step : 0, devices.title());

  // The step becomes a program, whose memory is known before it runs.
  StepPrograms programs(devices, job);
  const int64_t longest = batches.lengths().back();
  const MemoryTable memory = programs.memory(longest);
  info("{}", format_memory_table(memory));
  require_fit(job, memory);
  if (recipe.plan_only) return 0;

  // Weights go to their devices.
  TrainState state = load_state(devices, job, repository, true);
  if (resume) restore_checkpoint(*resume, devices, job, state);
  Recorder recorder(job, run,
                    {.total_steps = run.total_steps,
                     .logging_steps = run.logging_steps,
                     .peak_flops = run.total_steps > 20 ? peak_flops(devices, job.compute) : 0,
                     .memory_bytes = memory.peak,
                     .memory_limit = memory.limit},
                    resume ? resume->path / "trainer_state.json" : "");
  std::optional<Evaluator> evaluator;
  if (run.eval_every > 0 && !data.eval.empty()) evaluator.emplace(devices, job, data.eval);

  BatchesAhead ahead(batches);
  while (state.step < run.total_steps) {
    recorder.start_step();
    const Batch batch = ahead.at(state.step);
    const int64_t length = batch.tokens.shape().dims[2];
    const bool warm = programs.has(length);
    const StepPrograms::Entry& step = programs.at(length);
    const double rate = recipe.learning_rate * run.schedule.multiplier(state.step);
    const StepOutcome outcome = run_step(devices, job, step.executable, state, batch, rate);
    if (!outcome.finite()) stop_not_finite(devices, job, state, batch, outcome);
    recorder.step(outcome, batch, state.step, step.flops, warm);
    if (evaluator && run.evaluates_after(state.step)) recorder.evaluation(evaluator->run(state), state.step);
    const int signal = InterruptScope::signal();
    if (signal != 0 || run.saves_after(state.step)) save_checkpoint(job, repository, state, recorder.trainer_state());
    if (signal != 0) {
      info("interrupted: step {} is saved in {}; continue with resume_from_checkpoint=true", state.step,
           recipe.output_dir);
      return 128 + signal;
    }
  }

  write_root(job, repository, state, recorder);
  recorder.finish();
  return 0;
}

}  // namespace fettle
