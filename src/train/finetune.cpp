// This file shows a whole run on one page: it calls each part of the run once, from the recipe to the result.
#include "train/finetune.h"

#include <memory>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/report_error.h"
#include "base/seconds_since.h"
#include "eval/held_out.h"
#include "models/wrapped.h"
#include "plan/remat_choice.h"
#include "report/peak_flops.h"
#include "report/recorder.h"
#include "report/view/run_file.h"
#include "step/memory/require_fit.h"
#include "step/step_programs.h"
#include "train/checkpoints/best_checkpoint.h"
#include "train/loop.h"
#include "train/prepare.h"
#include "train/processes.h"
#include "train/result.h"
#include "train/retry.h"
#include "train/root_files.h"
#include "train/same_run.h"

namespace fettle {
namespace {

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
  const ModelRepository& repository = request.repository();

  // Opens the devices.
  require_same_start(processes, request);
  Devices devices(shared_by(processes, request.devices()));
  phases.done("opened the devices");

  // Checks the recipe, before any weight is read. Rows become batches.
  Prepared prepared = prepare(request, devices, processes, phases);
  const RunLength& length = prepared.length;

  // Settles and compiles the step and the evaluation, so that their memory is known before they run.
  processes.enter("compiling");
  const auto shape_of = [&](const BatchSpec& spec) { return prepared.batches.of(spec).fullest(); };
  const Run run = settle_step(prepared.asked, shape_of, devices, prepared.written());
  const Batches& batches = prepared.batches.keep_only(run.batch);
  if (run.batch != prepared.asked.batch) info("batches: {}", format_batches(batches, " an epoch"));
  phases.done("chose gradient_checkpointing");
  StepPrograms programs(devices, run);
  const MemoryTable memory = programs.memory(batches.fullest());
  phases.done("compiled the step");
  info("{}", format_memory_table(memory));
  require_fit(run, memory, prepared.variant);
  std::optional<HeldOut> held_out;
  if (length.eval_every > 0 && !prepared.data.eval.empty()) {
    held_out.emplace(devices, run, prepared.data.eval);
    const int64_t peak = evaluation_peak(run, memory, held_out->memory_stats());
    phases.done("compiled the evaluation");
    info("{}", format_evaluation_peak(run, peak, prepared.variant));
    require_evaluation_fit(run, memory, peak, prepared.variant);
  }
  if (request.plan_only()) return 0;

  // Loads the weights onto their devices.
  processes.enter("loading weights");
  TrainState state = prepared.resume ? resume_state(*prepared.resume, devices, run, repository)
                                     : load_state(devices, run, repository, true);
  if (const auto why = prepared.nothing_to_do()) {
    info("{}", *why);
    return 0;
  }
  phases.done("loaded the weights");
  // Waits until all processes have read the weights, because the base may be an earlier result in output_dir.
  processes.agree("weights", [] { return ""; });
  if (processes.first()) {
    clear_output(run, prepared.resume ? std::optional(prepared.resumed_step()) : std::nullopt);
    run_file.begin({.run = run,
                    .length = length,
                    .batches = batches,
                    .data = prepared.data,
                    .memory = memory,
                    .tokenizer = prepared.tokenizer,
                    .devices = devices,
                    .started = prepared.record.started,
                    .resumed_step = prepared.resumed_step()},
                   run.output.html_report);
  }

  // Trains.
  Recorder recorder(
      run, length,
      {.total_steps = length.total_steps,
       .logging_steps = length.logging_steps,
       .peak_flops = length.total_steps > 20 ? peak_flops(devices, run.target.kernels, run.precision.compute) : 0,
       .memory_bytes = memory.peak,
       .memory_limit = memory.share.limit},
      std::move(prepared.record), processes.first());
  recorder.measure_memory([&] { return devices.client().peak_bytes_in_use(); });
  TrainingLoop loop(
      {devices, run, repository, length, batches, prepared.output, processes, programs, held_out, state, recorder});
  on_interrupt("stopping after this step, then a checkpoint is saved; Ctrl-C again ends at once without saving");
  if (const int code = loop.run(); code != 0) return code;

  // Writes the result.
  on_interrupt("training has ended and the result is being written; Ctrl-C again ends at once without it");
  loop.settle_checkpoints();
  processes.enter("writing the result");
  prepared.output.check();
  if (state.step < length.total_steps) info("{}", early_end_text(run, recorder.record().trainer));
  if (state.disk) info("{}", state.disk->describe());
  const bool other = run.best.load_at_end && load_best(devices, run, repository, recorder.record().trainer, state);
  // A run that had already ended does not evaluate, so it has no classification report yet.
  const bool lacks_report = run.labels() && held_out && !held_out->classes();
  if (held_out && (other || lacks_report)) recorder.result_evaluation(held_out->run(state));
  retry_files("the result", [&] { write_root(run, repository, state, recorder, held_out, processes); });
  if (!processes.first()) return 0;
  recorder.finish();
  warn_of_result(run);
  info("the {} is in {}{}", run.adapter.lora ? "adapter" : "model", run.output.folder,
       run.output.html_report ? "; report.html there shows the run" : "");
  if (run.adapter.lora && has_class_for_text(*run.model.family))
    info(
        "in Transformers, load the adapter's base with AutoModelForImageTextToText; in the model that "
        "AutoModelForCausalLM makes, PEFT finds none of the adapter's modules");
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
    const auto run_file = std::make_shared<RunFile>();
    processes.before_end([run_file](const std::string& message) { run_file->end("failed", message); });
    try {
      const int code = train(request, processes, *run_file);
      run_file->end(code == 0 ? "finished" : "stopped");
      return code;
    } catch (const std::exception&) {
      run_file->end("failed", current_failure().text);
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
