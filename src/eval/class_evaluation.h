// Defines ClassEvaluation: what a classifier's logits are worth beside the labels of rows.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/classes/label_set.h"
#include "data/store/examples.h"
#include "eval/class_scores.h"

namespace fettle {

struct ClassEvaluation {
  Problem problem = Problem::kSingleLabel;
  int64_t rows = 0;    // with a label: those that count
  double loss = 0;     // mean over them, as Transformers has it: cross entropy, of several labels BCE, or squared error
  ClassScores scores;  // but of a regression
  NumberScores numbers;  // of a regression

  // By name, shares 0 to 1: accuracy (of several labels exact_match), f1_macro, f1_micro; of a regression mse, mae,
  // pearson, spearman.
  std::map<std::string, double> figures() const;
};

// `logits` are [rows, labels], row-major. Of several labels those above 0 are said, that is of a probability above 0.5.
ClassEvaluation evaluate_classes(const Examples& rows, std::span<const float> logits, const LabelSet& labels);

// Of one row: softmax, or sigmoid of several labels, or the numbers of a regression as they are.
std::vector<double> probabilities(std::span<const float> logits, Problem problem);
// The row's label that they say, as Example::classes.
std::vector<float> said_classes(std::span<const float> logits, Problem problem);

// The labels' scores and what was taken for what, as text; "" of a regression.
std::string format_class_tables(const ClassEvaluation& evaluation, const LabelSet& labels);

// classification_report.json and .txt, the figures and tables; with one label a row also confusion.svg and .png, for as
// many labels as can be told apart in it. Nothing without labelled rows.
void write_class_report(const std::filesystem::path& folder, const ClassEvaluation& evaluation, const LabelSet& labels);

}  // namespace fettle
