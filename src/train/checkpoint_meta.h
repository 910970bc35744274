// Defines what a checkpoint's manifest says of its run, and the check that a run may go on from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/saved/state.h"
#include "data/batches/batches.h"
#include "report/run_record.h"
#include "run/run.h"

namespace fettle {

// The position in the data is the step: steps of the same number of rows, over the same rows, in an order that the seed
// alone gives. So these numbers must agree, and the mesh need not.
// `base`: base_identity's; `data`: what the run is over; `trainer_state`: the text of trainer_state.json, whose
// checksum is kept.
nlohmann::json checkpoint_meta(const Run& run, int64_t step, const nlohmann::json& base, const DataIdentity& data,
                               const RunRecord& record, const std::string& trainer_state);

// Throws UserError naming what differs, both values and what to set, when the state is of another model, method or data
// order. Needs no data.
void check_meta(const StateReader& state, const Run& run);
// Warns when the state was written by a run with other kernels, whose sums round differently.
void report_kernels(const StateReader& state, const Run& run);
// As check_meta for what the run reads beside the checkpoint. Earlier versions wrote nothing of it, which is passed
// over.
void check_base(const StateReader& state, const nlohmann::json& base);
// The same for the data, once it is known.
void check_data(const StateReader& state, const DataIdentity& data);
// Returns the run's record: trainer_state.json beside state/, the sums and the start. Throws DamagedState when they are
// not what was written. Earlier versions wrote neither sums nor start: the sums are zero then, and the start is now.
RunRecord read_record(const StateReader& state);

}  // namespace fettle
