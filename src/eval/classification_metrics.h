// Defines metrics of predictions against true labels: accuracy, precision, recall, F1, the confusion table; and errors
// of predicted numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fettle {

// Shares are 0 to 1. 0/0 is reported as 0.
struct LabelScore {
  double precision = 0, recall = 0, f1 = 0;
  int64_t support = 0;  // rows that have the label
};

// Computed as scikit-learn's classification_report does. With one label a row, averages are over the labels that occur
// in the rows or in the predictions; with several labels a row, over all labels.
struct ClassificationMetrics {
  int64_t rows = 0;
  double accuracy = 0;             // share of the rows whose labels are all right
  std::vector<LabelScore> labels;  // by number
  LabelScore micro, macro, weighted;
  std::vector<int64_t> confusion;  // one label a row: [true label, predicted label], row-major
  // Share of the rows that have the most frequent label.
  double majority() const;
};

// One label a row: the true label's number and the predicted one's.
ClassificationMetrics score_labels(std::span<const int64_t> truth, std::span<const int64_t> predicted,
                                   int64_t num_labels);
// Several labels a row: 0 or 1 for each, [rows, num_labels].
ClassificationMetrics score_label_sets(std::span<const uint8_t> truth, std::span<const uint8_t> predicted,
                                       int64_t num_labels);

struct RegressionMetrics {
  double mse = 0, mae = 0;
  // Correlations; 0 if one side is constant. Equal numbers share the mean of their ranks.
  double pearson = 0, spearman = 0;
};
// [rows, numbers], row-major. With several numbers a row, each figure is the mean over them.
RegressionMetrics score_numbers(std::span<const double> truth, std::span<const double> predicted, int64_t numbers);

// A table of the labels' scores with their averages, laid out as scikit-learn's classification_report.
std::string format_scores(const ClassificationMetrics& scores, const std::vector<std::string>& names);
// The confusion table: a line for each true label, a column for each predicted label.
std::string format_confusion(const ClassificationMetrics& scores, const std::vector<std::string>& names);

}  // namespace fettle
