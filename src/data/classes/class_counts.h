// Defines ClassCounts: how often each label stands among examples, and what always saying the most frequent one is
// worth.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/classes/label_set.h"
#include "data/store/examples.h"

namespace fettle {

struct ClassCounts {
  std::vector<int64_t> rows;  // of each label; empty of a regression
  int64_t labelled = 0, unlabelled = 0;
  double lowest = 0, highest = 0, mean = 0;  // of a regression's numbers

  int64_t most() const;  // the label that stands most often; the first of equals
  // Share of the labelled rows that have it: the accuracy of always saying it. 0 without rows.
  double majority() const;
};
ClassCounts count_classes(const Examples& examples, const LabelSet& labels);

// One line: "4 labels of one each row; libs 40.0 %, net 30.1 %, ...: always saying 'libs' is right in 40.0 %".
std::string format_classes(const ClassCounts& counts, const LabelSet& labels);
nlohmann::ordered_json classes_json(const ClassCounts& counts, const LabelSet& labels);

}  // namespace fettle
