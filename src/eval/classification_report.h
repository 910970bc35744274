// Defines ClassificationReport, which compares a classifier's logits with the labels of rows.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/classes/label_set.h"
#include "data/store/examples.h"
#include "eval/classification_metrics.h"

namespace fettle {

struct ClassificationReport {
  Problem problem = Problem::kSingleLabel;
  int64_t rows = 0;  // number of rows that have a label; the metrics leave out other rows
  // Mean over the rows, as in Transformers: cross entropy, binary cross entropy (several labels a row) or squared error
  // (regression).
  double loss = 0;
  ClassificationMetrics scores;  // set for all problems except regression
  RegressionMetrics numbers;     // set for a regression
  std::vector<float> logits;     // [rows, labels], row-major; includes the rows without a label

  // Returns the metrics by name; shares are 0 to 1. With one label per row: accuracy, f1_macro, f1_micro. With several:
  // exact_match, f1_macro, f1_micro. Regression: mse, mae, pearson, spearman.
  std::map<std::string, double> figures() const;
};

// Compares `logits`, [rows, labels], row-major, with the labels of `rows`. With several labels per row, a label is
// predicted if its logit is above 0 (its probability is then above 0.5).
ClassificationReport classification_report(const Examples& rows, std::span<const float> logits, const LabelSet& labels);

// Returns the softmax of one row's logits. If a row may have several labels, returns the sigmoid of each logit. For a
// regression, returns the unchanged numbers.
std::vector<double> probabilities(std::span<const float> logits, Problem problem);
// Returns the prediction for one row, in the form of Example::classes.
std::vector<float> predicted_classes(std::span<const float> logits, Problem problem);

// Formats the scores of the labels. Adds the confusion table if rows have one label each and there are not too many
// labels. Returns "" for a regression.
std::string format_class_tables(const ClassificationReport& report, const LabelSet& labels);

// Writes classification_report.json and .txt with the metrics and tables. With one label per row, also writes
// confusion.svg and .png if the labels are few enough for a picture. Writes nothing if no row has a label.
void write_class_report(const std::filesystem::path& folder, const ClassificationReport& report,
                        const LabelSet& labels);

}  // namespace fettle
