// Defines HeldOut: rows that a run does not train on. The run's stage defines how they are evaluated.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "data/store/examples.h"
#include "eval/classification_report.h"
#include "step/evaluate.h"

namespace fettle {

class HeldOut {
 public:
  // Keeps references to devices and run.
  HeldOut(Devices& devices, const Run& run, const Examples& rows);

  // Evaluates the rows. If the stage trains labels, the metrics are those of ClassificationReport::figures. Calls
  // `before_batch` before each batch. What it throws ends the evaluation, and classes() stays as it was.
  Evaluation run(TrainState& state, const std::function<void()>& before_batch = {});
  // Compiles the largest program of run(), and returns the compiler's numbers for its memory.
  MemoryStats memory_stats() { return evaluator_.memory_stats(); }
  // Returns the report of the last run() if the stage trains labels.
  const std::optional<ClassificationReport>& classes() const { return last_; }
  // Writes the last run()'s classification report into the folder. Does nothing if the stage trains no labels.
  void write(const std::filesystem::path& folder) const;

 private:
  Examples rows_;
  Evaluator evaluator_;
  std::optional<LabelSet> labels_;
  std::optional<ClassificationReport> last_;
};

}  // namespace fettle
