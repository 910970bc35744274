// Defines ClassCounts: how often each label occurs in examples, and the accuracy of always predicting the most frequent
// label.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/classes/label_set.h"
#include "data/store/examples.h"

namespace fettle {

struct ClassCounts {
  std::vector<int64_t> rows;  // number of rows with each label; empty for a regression
  int64_t labelled = 0, unlabelled = 0;
  double lowest = 0, highest = 0, mean = 0;  // for a regression: the smallest, the largest and the mean number

  // Returns the number of the most frequent label; if several are equally frequent, the first of them.
  int64_t most() const;
  // Returns the share of labelled rows that have the most frequent label; 0 when no row has a label.
  double majority() const;
};
ClassCounts count_classes(const Examples& examples, const LabelSet& labels);

// Returns one line: "2, one per row: y 2, x 1; always predicting y is right in 66.7 %".
std::string format_classes(const ClassCounts& counts, const LabelSet& labels);
nlohmann::ordered_json classes_json(const ClassCounts& counts, const LabelSet& labels);

}  // namespace fettle
