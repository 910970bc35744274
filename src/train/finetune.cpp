// This file shows a whole run on one page: it calls each part of the run once, from the recipe to the result.
#include "train/finetune.h"

#include <map>

#include "base/host_memory.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/report_error.h"
#include "base/seconds_since.h"
#include "data/dataset.h"
#include "eval/held_out.h"
#include "plan/mesh_choice.h"
#include "plan/remat_choice.h"
#include "report/peak_flops.h"
#include "report/recorder.h"
#include "report/view/run_file.h"
#include "run/preflight.h"
#include "step/memory_table.h"
#include "step/state/batch_arrays.h"
#include "step/step_programs.h"
#include "tokenizer/tokenizer.h"
#include "train/best_checkpoint.h"
#include "train/checkpoint_meta.h"
#include "train/checkpoint_writer.h"
#include "train/not_finite.h"
#include "train/output_folder.h"
#include "train/processes.h"
#include "train/resume.h"
#include "train/retry.h"
#include "train/root_files.h"
#include "train/same_run.h"
#include "train/step_profile.h"

namespace fettle {
namespace {

// In a resumed run, chat templates get the date on which the run first started.
DataSpec started_at(const LocalTime& started, DataSpec spec) {
  spec.started = started;
  return spec;
}

DeviceRequest shared_by(const Processes& processes, DeviceRequest devices) {
  devices.run = processes.run();
  return devices;
}

int train(const Request& request, const Processes& processes, RunFile& run_file) {
  Phases phases;
  InterruptNotice notice;
  const auto on_interrupt = [&](const char* text) {
    if (processes.first()) notice.set(text);
  };
  on_interrupt("stopping before the first step; Ctrl-C again ends at once");
  // Checks the recipe against the model and the devices, before any weight is read.
  const ModelRepository& repository = request.repository();
  require_same_start(processes, request);
  Devices devices(shared_by(processes, request.devices()));
  phases.done("opened the devices");
  const Run asked = request.resolve(target_of(devices), Purpose::kTraining, choose_variant(request, devices));
  const MemoryTable held = held_table(asked, devices.memory(), devices.title());
  require_fit(asked, held);
  require_offload_dir(asked, devices, processes.several() ? processes.run()->place().local_size : 1);
  require_host_fit(held, devices.local_count(), free_host_memory());
  require_same_base(processes, asked, repository);
  const OutputFolder output = check_output(asked, processes);
  auto resume = find_resume_point(asked, repository);
  phases.done("checked the recipe");
  RunRecord record = resume ? std::move(resume->record) : RunRecord{.started = asked.data.started};
  if (resume) find_best(asked, resume->checkpoint, record.trainer);

  // Rows become batches.
  const Tokenizer tokenizer = Tokenizer::open(asked.model_folder);
  const Datasets data = processes.one_per_host_first("data", [&] {
    return load_datasets(started_at(record.started, asked.data), tokenizer, asked.model.config.vocab_size);
  });
  check_positions(asked, data.train);
  check_positions(asked, data.eval);
  std::map<int64_t, Batches> batches_by_count;  // by the number of micro-batches of a step
  const auto batches_of = [&](const BatchSpec& spec) -> const Batches& {
    return batches_by_count.try_emplace(spec.micro_batches, data.train, spec, tokenizer.pad_id().value_or(0))
        .first->second;
  };
  const Batches& asked_batches = batches_of(asked.batch);
  require_same_data(processes, asked_batches.identity(), resume ? resume->step : 0);
  if (resume) check_data(resume->state, asked_batches.identity());
  const RunLength length = run_length(asked.length, asked_batches.steps_per_epoch());
  check_best(asked, length);
  require_disk(asked, repository, length, resume.has_value(), resume ? resume->step : 0, processes.several());
  phases.done("read the rows");
  announce(asked, length, asked_batches, data.report, resume ? resume->step : 0, devices.title());

  // Compiles the step, so that its memory is known before it runs.
  processes.enter("compiling");
  const Run run = settle_step(
      asked, [&](const BatchSpec& spec) { return batches_of(spec).fullest(); }, devices,
      resume ? written_step(resume->state) : WrittenStep{});
  const Batches& batches = batches_of(run.batch);
  if (run.batch != asked.batch) info("batches: {}", format_batches(batches, " an epoch"));
  std::erase_if(batches_by_count, [&](const auto& made) { return made.first != run.batch.micro_batches; });
  phases.done("chose gradient_checkpointing");
  StepPrograms programs(devices, run);
  const MemoryTable memory = programs.memory(batches.fullest());
  phases.done("compiled the step");
  info("{}", format_memory_table(memory));
  require_fit(run, memory);
  if (request.plan_only()) return 0;

  // Loads the weights onto their devices.
  processes.enter("loading weights");
  TrainState state =
      resume ? resume_state(*resume, devices, run, repository) : load_state(devices, run, repository, true);
  if (resume && resume->step >= length.total_steps && has_result(run.output.folder, resume->checkpoint)) {
    info(
        "{} is the end of the run, and the result is in {}, so there is nothing to do; raise max_steps or "
        "num_train_epochs to continue",
        resume->checkpoint.string(), run.output.folder);
    return 0;
  }
  phases.done("loaded the weights");
  // Waits until all processes have read the weights, because the base may be an earlier result in output_dir.
  processes.agree("weights", [] { return ""; });
  if (processes.first()) clear_output(run, resume.has_value());
  if (processes.first())
    run_file.begin({.run = run,
                    .length = length,
                    .batches = batches,
                    .data = data,
                    .memory = memory,
                    .tokenizer = tokenizer,
                    .devices = devices,
                    .started = record.started,
                    .resumed_step = resume ? resume->step : 0},
                   run.output.html_report);
  Recorder recorder(run, length,
                    {.total_steps = length.total_steps,
                     .logging_steps = length.logging_steps,
                     .peak_flops = length.total_steps > 20 ? peak_flops(devices, run.compute) : 0,
                     .memory_bytes = memory.peak,
                     .memory_limit = memory.share.limit},
                    std::move(record), processes.first());
  recorder.measure_memory([&] { return devices.client().peak_bytes_in_use(); });
  std::optional<HeldOut> held_out;
  if (length.eval_every > 0 && !data.eval.empty()) held_out.emplace(devices, run, data.eval);

  CheckpointWriter checkpoints(
      run, repository, batches.identity(), [] { return free_host_memory(); }, &processes);

  int64_t saved_step = -1;
  auto save = [&] {
    processes.enter("saving a checkpoint");
    recorder.saved(checkpoints.save(state, recorder.record()));
    saved_step = state.step;
  };
  // Ends the run with a checkpoint of the last step.
  auto stop = [&](int signal) {
    processes.enter("saving a checkpoint");
    if (state.step != saved_step) save();
    checkpoints.require();
    info("interrupted: step {} is saved in {}; {}", state.step, run.output.folder,
         run.output.save_only_model
             ? "the checkpoint has only the weights (save_only_model), so the run cannot be resumed"
             : "continue with resume_from_checkpoint=true");
    return 128 + signal;
  };

  StepProfile profile(devices, run.output, state.step, length.total_steps, processes.rank());
  BatchPrefetcher prefetcher(batches, own_lines(devices, run));
  on_interrupt("stopping after this step, then a checkpoint is saved; Ctrl-C again ends at once without saving");
  while (state.step < length.total_steps && !recorder.ends_early()) {
    if (const int signal = processes.stop_before(state.step); signal != 0) return stop(signal);
    recorder.start_step();
    output.check();
    checkpoints.check();
    const Batch batch = prefetcher.at(state.step);
    const bool warm = programs.has(batch.shape);
    if (!warm) processes.enter("compiling");
    const StepPrograms::Entry& step = programs.at(batch.shape);
    processes.enter("training");
    const double rate = run.update.learning_rate * length.schedule.multiplier(state.step);
    profile.before_step(state.step);
    const StepOutcome outcome = run_step(devices, run, step.executable, state, batch, rate);
    if (outcome.overflowed) {
      recorder.overflow(state.step + 1, outcome.loss_scale);
      continue;
    }
    if (!outcome.finite()) {
      processes.enter("saving a checkpoint");
      checkpoints.settle();
      stop_not_finite(devices, run, state, batch, outcome);
    }
    recorder.step(outcome, batch, state.step, step.flops_of(batch.used), warm && !profile.recording());
    profile.after_step(state.step);
    const bool evaluates = held_out && length.evaluates_after(state.step);
    if (evaluates) processes.enter("evaluating");
    if (evaluates) recorder.evaluation(held_out->run(state), state.step);
    const int signal = processes.several() ? 0 : InterruptScope::signal();
    if (signal != 0 || length.saves_after(state.step) || (evaluates && run.best.save && recorder.is_best())) save();
    if (signal != 0) return stop(signal);
  }

  on_interrupt("training has ended and the result is being written; Ctrl-C again ends at once without it");
  processes.enter("saving a checkpoint");
  checkpoints.settle();
  processes.enter("writing the result");
  output.check();
  if (state.step < length.total_steps) info("{}", early_end_text(run, recorder.record().trainer));
  if (state.disk) info("{}", state.disk->describe());
  if (run.best.load_at_end && load_best(devices, run, repository, recorder.record().trainer, state) && held_out)
    recorder.result_evaluation(held_out->run(state));
  retry_files("the result", [&] { write_root(run, repository, state, recorder, held_out, processes); });
  if (!processes.first()) return 0;
  recorder.finish();
  info("the {} is in {}{}", run.lora ? "adapter" : "model", run.output.folder,
       run.output.html_report ? "; report.html there shows the run" : "");
  return 0;
}

}  // namespace

int finetune(const std::function<Request()>& open) {
  const InterruptScope interrupts;
  Processes processes = Processes::join();
  const auto body = [&] {
    processes.enter("downloading");
    const Request request = open();
    processes.enter("starting");
    RunFile run_file;
    try {
      const int code = train(request, processes, run_file);
      run_file.end(code == 0 ? "finished" : "stopped");
      return code;
    } catch (const std::exception&) {
      run_file.end("failed", current_failure().text);
      throw;
    }
  };
  try {
    return processes.end_together(body);
  } catch (const std::exception&) {
    if (!processes.several()) throw;
    const int code = report_error();  // prints the message before the launcher ends this process
    processes.end_job(code, current_failure().text);
    return code;
  }
}

}  // namespace fettle
