// Defines metrics of predictions against true labels: accuracy, precision, recall, F1 and the confusion table. For
// regressions: errors of predicted numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fettle {

// The scores of one label, from 0 to 1. 0/0 is reported as 0.
struct LabelScore {
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;  // rows that have the label
};

// A confusion table of more labels would need gigabytes.
inline constexpr int64_t kMostLabelsInConfusion = 1000;

// The metrics are computed like scikit-learn's classification_report. `macro` is an average over labels. If each row
// has one label, `macro` covers the labels that occur in the rows or in the predictions. Otherwise it covers all
// labels.
struct ClassificationMetrics {
  int64_t rows = 0;
  double accuracy = 0;             // share of the rows whose labels are all predicted correctly
  std::vector<LabelScore> labels;  // by label number
  LabelScore micro, macro, weighted;
  bool one_label = false;  // each row has one label
  // [true label, predicted label], row-major. Set if each row has one label and there are at most
  // kMostLabelsInConfusion labels.
  std::vector<int64_t> confusion;
  // Returns the share of the rows that have the most frequent label.
  double majority() const;
};

// Scores rows with one label each. For each row, `truth` has the number of the true label, and `predicted` has the
// number of the predicted label.
ClassificationMetrics score_labels(std::span<const int64_t> truth, std::span<const int64_t> predicted,
                                   int64_t num_labels);
// Scores rows with several labels each. Both arguments have 0 or 1 for each label, [rows, num_labels].
ClassificationMetrics score_label_sets(std::span<const uint8_t> truth, std::span<const uint8_t> predicted,
                                       int64_t num_labels);

struct RegressionMetrics {
  double mse = 0, mae = 0;
  // Correlations; 0 if the true values or the predictions are constant, NaN if a prediction is not finite. For
  // spearman, equal values share the mean of their ranks.
  double pearson = 0, spearman = 0;
};
// Scores a regression. Both arguments are [rows, numbers], row-major. With several numbers per row, each metric is the
// mean over the numbers.
RegressionMetrics score_numbers(std::span<const double> truth, std::span<const double> predicted, int64_t numbers);

// Formats the labels' scores and their averages as a table, laid out like scikit-learn's classification_report.
std::string format_scores(const ClassificationMetrics& scores, const std::vector<std::string>& names);
// Formats the confusion table: a line for each true label, a column for each predicted label.
std::string format_confusion(const ClassificationMetrics& scores, const std::vector<std::string>& names);

}  // namespace fettle
