// Defines Evaluator, which computes the losses of held-out examples with the current weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/batches/batches.h"
#include "data/store/examples.h"
#include "step/state/train_state.h"

namespace fettle {

struct Evaluation {
  double loss = 0;  // sum of token losses / number of trained tokens; for preferences and labels, mean over rows
  double perplexity = 0;
  double accuracy = 0;  // share of trained tokens whose most likely prediction is right
  // Further metrics. For preferences: rewards/chosen, ... (reward_metrics() of stages/preferences.h). For classes:
  // accuracy, ... (eval/classification_report.h). If `figures` is not empty, metrics() returns the figures instead of
  // the members `perplexity`, `accuracy` and `tokens`.
  std::map<std::string, double> figures;
  int64_t tokens = 0;  // number of trained tokens; for preferences and labels, number of rows
  int64_t samples = 0, steps = 0;
  double seconds = 0;

  // Returns Trainer's metrics: eval_loss, eval_perplexity, eval_accuracy, eval_runtime, eval_steps_per_second, ...
  std::map<std::string, double> metrics() const;
};

struct ProgramRows;

// Holds the batches of the examples and the evaluation programs of a run. Compiles each program when its batch shape
// first occurs.
class Evaluator {
 public:
  // Keeps references to devices and run. If there are `candidates` (token ids), only logits() may be called, and each
  // example has one trained token. With RowGrouping::kBranches, the examples are prompts and their continuations
  // (batch_spec.h); this needs can_branch(run), and only losses() may be called.
  Evaluator(Devices& devices, const Run& run, const Examples& examples, std::vector<int32_t> candidates = {},
            RowGrouping grouping = RowGrouping::kNone);
  // Calls `before_batch` before each batch. What it throws ends the evaluation.
  Evaluation run(TrainState& state, const std::function<void()>& before_batch = {});
  // Compiles the program for the largest batches, and returns the compiler's numbers for its memory.
  MemoryStats memory_stats();
  // Returns each example's loss, summed over its trained tokens, in the order of the examples. Not available for
  // preferences.
  std::vector<double> losses(TrainState& state);
  // Returns each example's logits, row-major, in the order of the examples: in stage cls [examples, num_labels]; with
  // candidates [examples, candidates], for the place of the trained token. `before_batch` is as in run().
  std::vector<float> logits(TrainState& state, const std::function<void()>& before_batch = {});

 private:
  const Executable& program(const BatchShape& shape);
  ProgramRows rows(TrainState& state, const Batch& batch);
  Devices& devices_;
  const Run& run_;
  std::vector<int32_t> candidates_;
  Batches batches_;
  std::map<std::pair<int64_t, int64_t>, Executable> programs_;  // keyed by lines and length
};

// Returns whether the model can compute several continuations of one prompt in one line: its layers have only causal
// attention, and the rows share lines. No mesh axis may split the positions.
bool can_branch(const Run& run);

// Finds the rows of `batch` whose loss is not finite. Evaluates the whole batch, and then each row with such a loss
// again, without the other rows. Returns the names in Batch::sources of the rows whose loss is still not finite.
std::vector<std::string> rows_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch);

}  // namespace fettle
