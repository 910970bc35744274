// The page: a run from recipe to result, each stage called once, in order.
#include "train/finetune.h"

#include "base/host_memory.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "checkpoint/saved/atomic_folder.h"
#include "data/dataset.h"
#include "eval/held_out.h"
#include "plan/mesh_choice.h"
#include "report/recorder.h"
#include "run/batch_spec.h"
#include "run/data_spec.h"
#include "run/device_request.h"
#include "run/labels.h"
#include "step/make_job.h"
#include "step/memory_table.h"
#include "step/positions.h"
#include "step/step_programs.h"
#include "tokenizer/tokenizer.h"
#include "train/checkpoint_meta.h"
#include "train/not_finite.h"
#include "train/output.h"
#include "train/result.h"
#include "train/resume.h"
#include "train/root_files.h"
#include "train/save.h"

namespace fettle {
namespace {

void write_root(const Job& job, const ModelRepository& repository, const TrainState& state, Recorder& recorder,
                const std::optional<HeldOut>& held_out) {
  AtomicFolder root(job.recipe.output_dir, AtomicFolder::Existing::kMerge);
  write_result(root.path(), job, repository, state);
  recorder.write(root.path());
  if (held_out) held_out->write(root.path());
  for (const std::string& name : earlier_result(job)) root.drop(name);
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
  Devices devices(device_request(asked));
  const std::optional<LabelSet> labels = settled_labels(asked, config.json, config.file);
  const Recipe recipe = settle_mesh(settled_recipe(asked, labels, config.json), config, devices);
  Job job = make_job(recipe, config.json, config.file, devices.count());
  use_float8_of(job, devices.capability(), devices.title());
  const MemoryTable held = held_table(job, devices.memory_limit(), devices.title());
  require_fit(job, held);
  require_host_fit(held, devices.count(), free_host_memory());
  const OutputFolder output = check_output(job);
  auto resume = find_resume_point(job, repository);

  // Rows become batches.
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const Datasets data =
      load_datasets(data_spec(recipe, labels, recipe.cutoff_len), tokenizer, job.model.config.vocab_size);
  check_positions(job, data.train);
  check_positions(job, data.eval);
  const Batches batches(data.train,
                        batch_spec(recipe, job.sharding.mesh(), BatchUse::kTraining, tokenizer.pad_id().value_or(0)));
  if (resume) check_data(resume->state, batches.identity());
  const RunLength run = run_length(recipe, batches.steps_per_epoch());
  require_disk(job, run, resume.has_value(), resume ? resume->step : 0);
  announce(job, run, batches, data.report, resume ? resume->step : 0, devices.title());

  // The step becomes a program, whose memory is known before it runs.
  StepPrograms programs(devices, job);
  const int64_t longest = batches.lengths().back();
  const MemoryTable memory = programs.memory(longest);
  info("{}", format_memory_table(memory));
  require_fit(job, memory);
  if (recipe.plan_only) return 0;

  // Weights go to their devices.
  TrainState state =
      resume ? resume_state(*resume, devices, job, repository) : load_state(devices, job, repository, true);
  if (resume && resume->step >= run.total_steps && has_result(recipe.output_dir, resume->step)) {
    info(
        "{} is at the end of the run, whose result is in {}: there is nothing left to do; raise max_steps or "
        "num_train_epochs to go on",
        resume->checkpoint.string(), recipe.output_dir);
    return 0;
  }
  clear_output(job, resume.has_value());
  Recorder recorder(job, run,
                    {.total_steps = run.total_steps,
                     .logging_steps = run.logging_steps,
                     .peak_flops = run.total_steps > 20 ? peak_flops(devices, job.compute) : 0,
                     .memory_bytes = memory.peak,
                     .memory_limit = memory.limit},
                    resume ? resume->checkpoint / "trainer_state.json" : "");
  std::optional<HeldOut> held_out;
  if (run.eval_every > 0 && !data.eval.empty()) held_out.emplace(devices, job, data.eval, labels);

  CheckpointWriter checkpoints(job, repository, batches.identity());

  BatchesAhead ahead(batches);
  while (state.step < run.total_steps) {
    recorder.start_step();
    checkpoints.check();
    const Batch batch = ahead.at(state.step);
    const int64_t length = batch.tokens.shape().dims[2];
    const bool warm = programs.has(length);
    const StepPrograms::Entry& step = programs.at(length);
    const double rate = recipe.learning_rate * run.schedule.multiplier(state.step);
    const StepOutcome outcome = run_step(devices, job, step.executable, state, batch, rate);
    if (outcome.overflowed) {
      recorder.overflow(state.step + 1, outcome.loss_scale);
      continue;
    }
    if (!outcome.finite()) {
      checkpoints.settle();
      stop_not_finite(devices, job, state, batch, outcome);
    }
    recorder.step(outcome, batch, state.step, step.flops, warm);
    if (held_out && run.evaluates_after(state.step)) recorder.evaluation(held_out->run(state), state.step);
    const int signal = InterruptScope::signal();
    if (signal != 0 || run.saves_after(state.step)) recorder.saved(checkpoints.save(state, recorder.trainer_state()));
    if (signal != 0) {
      checkpoints.wait();
      info("interrupted: step {} is saved in {}; continue with resume_from_checkpoint=true", state.step,
           recipe.output_dir);
      return 128 + signal;
    }
  }

  checkpoints.wait();
  write_root(job, repository, state, recorder, held_out);
  recorder.finish();
  return 0;
}

}  // namespace fettle
