#include "train/not_finite.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

// `sources` says for each sequence which row it is from. Returns these rows, each once, in the form of skip_rows.
std::vector<std::string> row_names(const std::vector<std::string>& sources) {
  std::vector<std::string> names;
  for (const std::string& source : sources) {
    const std::string name = source.substr(0, source.find(kOtherReply));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace

void stop_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch,
                     const StepOutcome& outcome, const std::function<void()>& save) {
  std::vector<std::string> rows = rows_not_finite(devices, run, state, batch);
  const std::string what =
      rows.empty() ? "Each row alone has a finite loss. The rows of the step are" : "The loss is not finite for";
  const std::vector<std::string> bad = row_names(rows), all = row_names(batch.sources);
  const std::string skip =
      bad.empty() ? "" : fmt::format(", or leave them out with skip_rows: [{}]", fmt::join(bad, ", "));
  // No step has changed the weights yet, so the learning rate is not the cause. Rows that all fail have a common cause.
  if (state.step == 0 && bad.size() == all.size())
    throw UserError(
        "step 1: loss {}, gradient norm {}. {} {}. Perhaps the model's weights are broken: try `fettle generate`. "
        "{}Otherwise check these rows{}",
        outcome.loss, outcome.grad_norm, what, fmt::join(bad.empty() ? all : bad, ", "),
        run.precision.compute == DType::kF32 ? ""
                                             : "Perhaps the values are too large for 16 bits: set bf16, pure_bf16 and "
                                               "fp16 to false to compute in float32. ",
        skip);
  if (!bad.empty() && bad.size() < all.size()) save();
  const auto kept = newest_checkpoint(run.output.folder);
  throw UserError(
      "step {}: loss {}, gradient norm {}. {} {}. The step did not change the weights; {}. Check these "
      "rows{}, or lower learning_rate (now {}), and {}",
      state.step + 1, outcome.loss, outcome.grad_norm, what, fmt::join(bad.empty() ? all : bad, ", "),
      kept && kept->step == state.step ? fmt::format("step {} is saved in {}", kept->step, kept->path.string())
                                       : newest_checkpoint_text(run.output.folder),
      skip, run.update.learning_rate, kept ? "resume" : "start the run again");
}

}  // namespace fettle
