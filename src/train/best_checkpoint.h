// What a run does with its best evaluation (BestSpec): checks before the run, and the end with the best weights.
#pragma once

#include "report/log_files.h"
#include "run/run_length.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError when evaluations have no figure with the name of metric_for_best_model, or when
// load_best_model_at_end finds no evaluation with a checkpoint.
void check_best(const Run& run, const RunLength& length);

// "stopped at step 40: eval_loss was not better than 1.2345 (step 20) in 2 evaluations"
std::string early_end_text(const Run& run, const TrainerState& record);

// Replaces the state by that of the checkpoint with the best evaluation, unless it is of the same step. Evaluations
// without a checkpoint are left out, as Trainer does. Throws UserError when the
// checkpoint is missing or damaged; the message says which other one the result can be made from.
void load_best(Devices& devices, const Run& run, const ModelRepository& repository, const TrainerState& record,
               TrainState& state);

}  // namespace fettle
