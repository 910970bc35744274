// Defines LabelReader, which turns a row's label into the numbers that are trained.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/classes/label_set.h"
#include "data/read/dataset_info.h"

namespace fettle {

// Safe to use from several threads at once.
class LabelReader {
 public:
  // If `yes_or_no` is true, a list in the label column has one 0 or 1 for each label. Otherwise, the list has names or
  // numbers of labels.
  LabelReader(LabelSet labels, bool yes_or_no);

  // Returns the label of the row at `where` ("file:line") in the form of Example::classes; empty when the row has no
  // label. If no label is called -1, a row with the number -1 has no label (Hugging Face's data sets write -1 for it).
  // A label is a name or, if no label has this name, a label number. Several labels are a list. Throws BadRow
  // when the value is not one of the labels, or when its kind does not fit the problem type.
  std::vector<float> classes(const nlohmann::ordered_json& row, const DataSource& source,
                             const std::string& where) const;

 private:
  int64_t number_of(const nlohmann::ordered_json& value, bool cell) const;
  std::vector<float> several(const nlohmann::ordered_json& value) const;
  std::vector<float> numbers(const nlohmann::ordered_json& value, bool cell) const;

  LabelSet labels_;
  bool yes_or_no_;
  std::map<std::string, int64_t> number_of_name_;
  bool named_by_numbers_ =
      false;  // true: some label names are numbers (stars "1" to "5"), so numbers in rows are names
};

}  // namespace fettle
