// Defines evaluation: loss, perplexity and accuracy over held-out examples, with the weights as they are.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "data/store/examples.h"
#include "step/train_state.h"

namespace fettle {

struct Evaluation {
  double loss = 0;  // sum of token losses / trained tokens
  double perplexity = 0;
  double accuracy = 0;  // share of trained tokens whose likeliest prediction is right
  int64_t tokens = 0;   // trained ones
  int64_t samples = 0;
  double seconds = 0;

  // As Trainer's metrics: eval_loss, eval_perplexity, eval_accuracy, eval_runtime, eval_samples_per_second, ...
  std::map<std::string, double> metrics() const;
};

// The evaluation programs of a job, compiled once for each length, and the examples in their batches.
class Evaluator {
 public:
  // Keeps devices and job by reference.
  Evaluator(Devices& devices, const Job& job, const Examples& examples);
  Evaluation run(TrainState& state);

 private:
  Devices& devices_;
  const Job& job_;
  Batches batches_;
  std::map<int64_t, Executable> programs_;  // by length
};

// Of the rows in `batch`, those whose loss is not finite: "file:line" each.
std::vector<std::string> rows_not_finite(Devices& devices, const Job& job, TrainState& state, const Batch& batch);

// The `fettle eval` command: the model, with adapter_name_or_path if given, over eval_dataset (or the rows val_size
// sets apart, or else the whole dataset). Prints the figures to `out`.
int run_eval(const Recipe& recipe, std::ostream& out);

}  // namespace fettle
