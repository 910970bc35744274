// Defines how a run uses its best evaluation (BestSpec). check_best checks the settings before the run, and load_best
// loads the best weights at the end.
#pragma once

#include "data/store/examples.h"
#include "report/run_record.h"
#include "run/run_length.h"
#include "step/state/train_state.h"

namespace fettle {

// Throws UserError when evaluations have no metric with the name in metric_for_best_model. With load_best_model_at_end,
// one of the two intervals (evaluations, checkpoints) must be a multiple of the other, or save_strategy must be best;
// otherwise throws UserError. Only warns if the recipe does not ask for load_best_model_at_end itself.
void check_best(const Run& run, const RunLength& length);

// Sets the record's digest of the held-out rows. If the checkpoint of a resumed run has another digest, warns, and no
// longer compares its evaluations with later ones (RunRecord::comparable_log).
void note_held_out(const Examples& held_out, RunRecord& record);

// Returns "stopped at step 40: eval_loss was not better than 1.2345 (step 20) in 2 evaluations". If the metric was
// never finite, the text says so.
std::string early_end_text(const Run& run, const TrainerState& record);

// Finds the checkpoints of the evaluations in the log (record.checkpoints), and chooses the best one by the metric of
// this run. So the choice is right even if earlier parts of the run had another metric or chose none. Looks beside
// `resumed`, the checkpoint from which the run continues, and for the recorded best checkpoint also at its recorded
// path. (The folder may have been moved, or may be spelt in another way.) With load_best_model_at_end, throws UserError
// if the best checkpoint is the recorded one and is in neither place. Does nothing if the run needs no best evaluation.
void find_best(const Run& run, const std::filesystem::path& resumed, RunRecord& record);

// Replaces the state with the state in the checkpoint of the best evaluation, and returns true. Does nothing and
// returns false if `state` is already at that step. Evaluations without a checkpoint do not count. If no evaluation has
// a checkpoint, warns and returns false. Throws UserError when the checkpoint is missing or damaged. The message names
// the newest checkpoint whose weights can be used instead, if there is one.
bool load_best(Devices& devices, const Run& run, const ModelRepository& repository, const TrainerState& record,
               TrainState& state);

}  // namespace fettle
