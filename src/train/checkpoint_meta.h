// Defines what a checkpoint's manifest says about its run, and the check that a run can continue from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/saved/state.h"
#include "data/batches/batches.h"
#include "report/run_record.h"
#include "run/run.h"

namespace fettle {

// Returns the manifest's fields. The step gives the position in the data: all steps have the same number of rows, and
// the seed alone gives the order of rows. So these settings must agree with the settings in the checkpoint; the mesh
// may differ. `base` is base_identity()'s result, `data` identifies the examples. `trainer_state` is the text of
// trainer_state.json; its checksum is stored.
nlohmann::json checkpoint_meta(const Run& run, int64_t step, const nlohmann::json& base, const DataIdentity& data,
                               const RunRecord& record, const std::string& trainer_state);

// Throws UserError when the state belongs to another model, method or data order. The message has the difference, both
// values and what to set. Needs no data.
void check_meta(const StateReader& state, const Run& run);
// Warns when the state was written by a run with other kernels, whose sums round differently.
void report_kernels(const StateReader& state, const Run& run);
// Returns what the layers saved for the backward pass in the run that wrote the state (gradient_checkpointing); "" for
// checkpoints of earlier versions.
std::string written_remat(const StateReader& state);
// Warns when the recipe sets another policy than the one of written_remat().
void report_remat(const StateReader& state, const Run& run);
// Does the same as check_meta, for base_identity(). Skips fields that checkpoints of earlier versions lack.
void check_base(const StateReader& state, const nlohmann::json& base);
// Does the same as check_meta, for the data.
void check_data(const StateReader& state, const DataIdentity& data);
// Returns the run's record: trainer_state.json in the checkpoint, the running sums and the start. Throws DamagedState
// when they differ from what was written. In checkpoints of earlier versions, the sums and the start are missing; they
// then become zero and the current time.
RunRecord read_record(const StateReader& state);

}  // namespace fettle
