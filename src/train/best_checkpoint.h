// Defines what a run does with its best evaluation (BestSpec): checks before the run, and loading the best weights at
// the end.
#pragma once

#include "report/log_files.h"
#include "run/run_length.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError when evaluations have no metric with the name in metric_for_best_model, or when
// load_best_model_at_end finds no evaluation with a checkpoint.
void check_best(const Run& run, const RunLength& length);

// Returns "stopped at step 40: eval_loss was not better than 1.2345 (step 20) in 2 evaluations".
std::string early_end_text(const Run& run, const TrainerState& record);

// Replaces the state with the state in the checkpoint of the best evaluation, unless that checkpoint is of the same
// step. Evaluations without a checkpoint do not count, as in Trainer. Throws UserError when the checkpoint is missing
// or damaged; the message names another checkpoint from which the result can be made.
void load_best(Devices& devices, const Run& run, const ModelRepository& repository, const TrainerState& record,
               TrainState& state);

}  // namespace fettle
