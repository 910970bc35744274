#include "train/loop.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "step/run_step.h"
#include "step/state/batch_arrays.h"
#include "train/not_finite.h"

namespace fettle {
namespace {

// Ends an evaluation because of a signal.
struct EvaluationEnded {
  int signal;
};

}  // namespace

TrainingLoop::TrainingLoop(const LoopParts& parts)
    : with_(parts),
      checkpoints_(parts.run, parts.repository, parts.batches.identity(), parts.processes),
      profile_(parts.devices, parts.run.output, parts.state.step, parts.length.total_steps, parts.processes.rank()),
      prefetcher_(parts.batches, own_lines(parts.devices, parts.run)),
      first_step_(parts.state.step) {
  checkpoints_.on_failure([this](const std::filesystem::path& folder) {
    with_.recorder.not_saved(folder);
    saved_step_ = -1;
  });
}

int TrainingLoop::run() {
  if (with_.recorder.record().evaluation_due)
    if (const int code = finish_step(); code != 0) return code;
  while (with_.state.step < with_.length.total_steps && !with_.recorder.ends_early())
    if (const int code = step(); code != 0) return code;
  return 0;
}

int TrainingLoop::step() {
  TrainState& state = with_.state;
  if (const int signal = with_.processes.stop_before(state.step); signal != 0) return stop(signal);
  with_.recorder.start_step();
  with_.output.check();
  checkpoints_.check();

  const Batch batch = prefetcher_.at(state.step);
  const bool warm = with_.programs.has(batch.shape);
  if (!warm) with_.processes.enter("compiling");
  const StepPrograms::Entry& program = with_.programs.at(batch.shape);
  with_.processes.enter("training");
  const double rate = with_.run.update.learning_rate * with_.length.schedule.multiplier(state.step);
  profile_.before_step(state.step);
  const StepOutcome outcome = run_step(with_.devices, with_.run, program.executable, state, batch, rate);
  if (outcome.overflowed) {  // run() repeats the step with a smaller loss scale
    with_.recorder.overflow(state.step + 1, outcome.loss_scale);
    return 0;
  }
  if (!outcome.finite()) {
    settle_checkpoints();
    stop_not_finite(with_.devices, with_.run, state, batch, outcome, [this] { save_before_bad_rows(); });
  }
  with_.recorder.step(outcome, batch, state.step, program.flops_of(batch.used), warm && !profile_.recording());
  profile_.after_step(state.step);

  return finish_step();
}

int TrainingLoop::finish_step() {
  const TrainState& state = with_.state;
  int signal = evaluate();
  // Several processes agree on a signal before the next step.
  if (signal == 0 && !with_.processes.several()) signal = InterruptScope::signal();
  changed_ = changed_ || state.step != first_step_ || !with_.recorder.record().evaluation_due;
  if ((signal != 0 && changed_) || with_.recorder.saves()) save();
  return signal != 0 ? stop(signal) : 0;
}

int TrainingLoop::evaluate() {
  if (!with_.held_out || !with_.length.evaluates_after(with_.state.step)) return 0;
  // The evaluation is compared with the checkpoints that were written. All processes must know the same ones.
  if (with_.run.best.save && with_.processes.several()) settle_checkpoints();
  with_.processes.enter("evaluating");
  const auto end_on_signal = [this] {
    if (const int signal = with_.processes.stop_before_batch(); signal != 0) throw EvaluationEnded{signal};
  };
  try {
    with_.recorder.evaluation(with_.held_out->run(with_.state, end_on_signal), with_.state.step);
    return 0;
  } catch (const EvaluationEnded& ended) {
    with_.recorder.evaluation_ended();
    return ended.signal;
  }
}

void TrainingLoop::save() {
  with_.recorder.saved(enter_saving().save(with_.state, with_.recorder.record()));
  saved_step_ = with_.state.step;
}

void TrainingLoop::save_before_bad_rows() {
  if (!changed_ || with_.state.step == saved_step_) return;
  checkpoints_.keep_old();
  save();
  settle_checkpoints();
}

int TrainingLoop::stop(int signal) {
  if (!changed_) {
    info("interrupted before the first step, so there is nothing to save");
    return 128 + signal;
  }
  if (with_.state.step != saved_step_) save();
  enter_saving().require();
  info("interrupted: step {} is saved in {}; {}", with_.state.step, with_.run.output.folder,
       with_.run.output.save_only_model
           ? "the checkpoint has only the weights (save_only_model), so the run cannot be resumed"
           : "continue with resume_from_checkpoint=true");
  return 128 + signal;
}

CheckpointWriter& TrainingLoop::enter_saving() {
  with_.processes.enter("saving a checkpoint");
  return checkpoints_;
}

}  // namespace fettle
