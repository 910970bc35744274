#include "train/not_finite.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "step/evaluate.h"

namespace fettle {

void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                     const StepOutcome& outcome) {
  std::vector<std::string> rows = rows_not_finite(devices, run, state, batch);
  const std::string what = rows.empty() ? "none of its rows alone; its rows are" : "the loss of";
  if (rows.empty()) rows = batch.sources;
  const auto kept = newest_checkpoint(run.output.folder);
  throw UserError(
      "step {}: loss {}, gradient norm {}: not finite in {} {}. The weights did not change; {}. Check these "
      "rows, or lower learning_rate (now {}) and resume",
      state.step + 1, outcome.loss, outcome.grad_norm, what, fmt::join(rows, ", "),
      kept ? "the last good checkpoint is " + kept->path.string() : "no checkpoint was saved yet",
      run.update.learning_rate);
}

}  // namespace fettle
