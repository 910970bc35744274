// Defines HeldOut: the rows that a run holds out, evaluated as its stage wants it.
#pragma once

#include <filesystem>
#include <optional>

#include "data/store/examples.h"
#include "eval/class_evaluation.h"
#include "step/evaluate.h"

namespace fettle {

class HeldOut {
 public:
  // Keeps devices and job by reference. `labels` are those of labelled rows.
  HeldOut(Devices& devices, const Job& job, const Examples& rows, const std::optional<LabelSet>& labels);

  // Of stage cls also the figures of the labels, by the names that ClassEvaluation::figures has for them.
  Evaluation run(TrainState& state);
  // Of stage cls: what the last run() found, as write_class_report; else nothing.
  void write(const std::filesystem::path& folder) const;

 private:
  Examples rows_;
  Evaluator evaluator_;
  std::optional<LabelSet> labels_;
  std::optional<ClassEvaluation> last_;
};

}  // namespace fettle
