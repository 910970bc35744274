// Defines Evaluator: losses of held-out examples, with the weights as they are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/store/examples.h"
#include "step/state/train_state.h"

namespace fettle {

struct Evaluation {
  double loss = 0;  // sum of token losses / trained tokens; of preferences the mean over their rows
  double perplexity = 0;
  double accuracy = 0;                    // share of trained tokens whose likeliest prediction is right
  std::map<std::string, double> figures;  // of preferences rewards/chosen, ... (preference.h), of classes accuracy, ...
                                          // (classification_report.h); then perplexity and token accuracy are not set
  int64_t tokens = 0;                     // trained ones; of preferences their rows
  int64_t samples = 0;
  double seconds = 0;

  // As Trainer's metrics: eval_loss, eval_perplexity, eval_accuracy, eval_runtime, eval_samples_per_second, ...
  std::map<std::string, double> metrics() const;
};

// The evaluation programs of a run, compiled once for each length, and the examples in their batches.
class Evaluator {
 public:
  // Keeps devices and run by reference.
  Evaluator(Devices& devices, const Run& run, const Examples& examples);
  Evaluation run(TrainState& state);
  // Each example's loss, summed over its trained tokens, in their order. Not of preferences.
  std::vector<double> losses(TrainState& state);
  // Of stage cls: each example's logits, row-major [examples, num_labels], in their order.
  std::vector<float> logits(TrainState& state);

 private:
  struct RowLosses;
  RowLosses rows(TrainState& state, const Batch& batch);
  Devices& devices_;
  const Run& run_;
  Batches batches_;
  std::map<int64_t, Executable> programs_;  // by length
};

// Of the rows in `batch`, those whose loss is not finite: "file:line" each.
std::vector<std::string> rows_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch);

}  // namespace fettle
