// Defines LabelSet: the labels of a run of stage cls, by which a row's label becomes the numbers that are trained.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/read/dataset_info.h"

namespace fettle {

enum class Problem { kSingleLabel, kMultiLabel, kRegression };
// Of a settled recipe (labels.h) of stage cls.
Problem problem_of(const Recipe& recipe);

class LabelSet {
 public:
  // Of a settled recipe. `yes_or_no`: lists of the rows are a 0 or 1 for each label (LabelScan::yes_or_no).
  explicit LabelSet(const Recipe& recipe, bool yes_or_no = false);

  // The label of the row at `where` ("file:line") as Example::classes; empty when it has none. A label is its name, or
  // its number where no name is one; several are a list of those, or of 0s and 1s. Throws BadRow for what is not among
  // the labels, and for a value of another kind than problem_type asks for.
  std::vector<float> classes(const nlohmann::ordered_json& row, const DataSource& source,
                             const std::string& where) const;

  Problem problem() const { return problem_; }
  int64_t size() const { return static_cast<int64_t>(names_.size()); }
  const std::string& name(int64_t k) const { return names_[static_cast<size_t>(k)]; }
  int64_t classes_per_row() const { return problem_ == Problem::kSingleLabel ? 1 : size(); }
  // Names of the labels of a row, as "admin" or "admin, net"; of a regression its numbers; "none" for no label of
  // several.
  std::string describe(const std::vector<float>& classes) const;

 private:
  int64_t number_of(const nlohmann::ordered_json& value, bool cell) const;
  std::vector<float> several(const nlohmann::ordered_json& value) const;
  std::vector<float> numbers(const nlohmann::ordered_json& value, bool cell) const;

  Problem problem_;
  bool yes_or_no_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t> number_of_name_;
  bool named_by_numbers_ = false;  // then a number in a row is a name, as 5 of 1 to 5 stars
};

}  // namespace fettle
