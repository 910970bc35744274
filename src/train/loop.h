// Defines TrainingLoop: the steps of a run, with the evaluations and checkpoints between them.
#pragma once

#include <cstdint>
#include <optional>

#include "data/batches/prefetcher.h"
#include "eval/held_out.h"
#include "programs/devices.h"
#include "report/recorder.h"
#include "run/run.h"
#include "run/run_length.h"
#include "step/state/train_state.h"
#include "step/step_programs.h"
#include "train/checkpoints/checkpoint_writer.h"
#include "train/output_folder.h"
#include "train/processes.h"
#include "train/step_profile.h"

namespace fettle {

// What a loop works on. All of it must outlive the loop.
struct LoopParts {
  Devices& devices;
  const Run& run;
  const ModelRepository& repository;
  const RunLength& length;
  const Batches& batches;
  const OutputFolder& output;
  const Processes& processes;
  StepPrograms& programs;
  std::optional<HeldOut>& held_out;  // none: the run has no evaluations
  TrainState& state;
  Recorder& recorder;
};

class TrainingLoop {
 public:
  explicit TrainingLoop(const LoopParts& parts);

  // Trains from the state's step to the last step, or until early stopping ends the run. Returns 0. A checkpoint may
  // then still be in progress. If a signal arrives, finishes the step, saves a checkpoint, waits until it is complete,
  // and returns 128 + signal. A signal also ends an evaluation; the run that continues then begins with this
  // evaluation. Throws UserError when another run takes over output_dir, when a loss or gradient norm is
  // not finite, or when the checkpoint after a signal cannot be written.
  int run();
  // Waits until no checkpoint is being written.
  void settle_checkpoints() { enter_saving().settle(); }

 private:
  // Does one step, unless a signal has arrived. Returns 0, or 128 + signal when the run must end.
  int step();
  // Evaluates and saves as the step that was just done asks for. Returns 0, or 128 + signal when the run must end.
  int finish_step();
  // Evaluates if the last step asks for it. Returns 0, or the signal that ended the evaluation.
  int evaluate();
  void save();
  // Saves the state before a step that failed because of its rows. Deletes no earlier checkpoint, because the weights
  // may contribute to the failure.
  void save_before_bad_rows();
  // Makes sure that what this process did is in a checkpoint. Returns 128 + signal.
  int stop(int signal);
  // Tells the other processes that this one may now wait for the writer. Returns the writer.
  CheckpointWriter& enter_saving();

  const LoopParts with_;
  CheckpointWriter checkpoints_;
  StepProfile profile_;
  BatchPrefetcher prefetcher_;
  const int64_t first_step_;  // the state's step at the start
  bool changed_ = false;      // there is something to save: a step, or the evaluation that the last run did not end
  int64_t saved_step_ = -1;   // the step of the last checkpoint, which may still be in progress; -1: none, or it failed
};

}  // namespace fettle
