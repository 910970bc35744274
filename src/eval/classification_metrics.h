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

// As scikit-learn's classification_report has them: the averages are over the labels that are true of, or were said of,
// any row; of several labels a row over all of them.
struct ClassificationMetrics {
  int64_t rows = 0;
  double accuracy = 0;             // rows of which all labels are right
  std::vector<LabelScore> labels;  // by number
  LabelScore micro, macro, weighted;
  std::vector<int64_t> confusion;  // one label a row: [true label, said label], row-major
  // Share of the rows that have the most frequent label.
  double majority() const;
};

// One label a row: its number, and what was said.
ClassificationMetrics score_labels(std::span<const int64_t> truth, std::span<const int64_t> said, int64_t num_labels);
// Several labels a row: 0 or 1 for each, [rows, num_labels].
ClassificationMetrics score_label_sets(std::span<const uint8_t> truth, std::span<const uint8_t> said,
                                       int64_t num_labels);

struct RegressionMetrics {
  double mse = 0, mae = 0;
  double pearson = 0,
         spearman = 0;  // correlations, of ranks where equal numbers share theirs; 0 when one side is constant
};
// [rows, numbers], row-major; of several numbers a row the mean of each one's figures.
RegressionMetrics score_numbers(std::span<const double> truth, std::span<const double> said, int64_t numbers);

// A table of the labels' scores with their averages, laid out as scikit-learn's classification_report.
std::string format_scores(const ClassificationMetrics& scores, const std::vector<std::string>& names);
// Which label was taken for which: a line for each true label, a column for each said one.
std::string format_confusion(const ClassificationMetrics& scores, const std::vector<std::string>& names);

}  // namespace fettle
