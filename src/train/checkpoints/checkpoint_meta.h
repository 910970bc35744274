// Defines the fields of a checkpoint's manifest that describe the run that wrote the checkpoint. Also defines the
// checks that compare a run with the checkpoint from which it continues.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/saved/state.h"
#include "data/batches/batches.h"
#include "plan/remat_choice.h"
#include "report/run_record.h"
#include "run/run.h"

namespace fettle {

// Returns the manifest's fields. The position in the data is not stored, because it follows from the step: all steps
// have the same number of rows, and the order of rows depends only on the seed. So a run that continues must have the
// same rows per step, seed and data; its mesh may differ. `base` is base_identity()'s result, `data` identifies the
// examples. `trainer_state` is the text of trainer_state.json; the manifest stores its checksum.
nlohmann::json checkpoint_meta(const Run& run, int64_t step, const nlohmann::json& base, const DataIdentity& data,
                               const RunRecord& record, const std::string& trainer_state);

// Throws UserError when the state was written with another model, method or order of rows. The message says what
// differs, and has a remedy. Does not need the data.
void check_meta(const StateReader& state, const Run& run);
// Warns when the state was written with micro-batches of another size, if the loss of a row depends on the other rows
// of its micro-batch. Checkpoints of earlier versions lack the size.
void report_micro_batches(const StateReader& state, const Run& run);
// Warns when the state was written by a run with other kernels, because the sums of other kernels round differently.
void report_kernels(const StateReader& state, const Run& run);
// Warns when the optimizer's arguments (optim_args) differ from those of the run that wrote the state. Checkpoints of
// earlier versions lack them; for apollo_adamw, the defaults of these versions are named.
void report_optim_args(const StateReader& state, const Run& run);
// Returns the gradient_checkpointing policy and the micro-batches of the run that wrote the state. Checkpoints of
// earlier versions lack them.
WrittenStep written_step(const StateReader& state);
// Warns when the recipe sets a policy that differs from written_step().
void report_remat(const StateReader& state, const Run& run);
// Throws UserError when the state was written with another base model, reference model or adapter. `base` is
// the result of base_identity() for this run. Skips fields that checkpoints of earlier versions lack.
void check_base(const StateReader& state, const nlohmann::json& base);
// Throws UserError when the state was written with other rows or tokens.
void check_data(const StateReader& state, const Run& run, const DataIdentity& data);
// Returns the run's record: trainer_state.json in the checkpoint, the running sums of the log, and the time at which
// the run first started. Throws DamagedState when trainer_state.json is missing or has changed since it was written, or
// when a field is broken. In checkpoints of earlier versions the sums and the time are missing; zero and the current
// time replace them.
RunRecord read_record(const StateReader& state);

}  // namespace fettle
