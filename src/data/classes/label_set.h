// Defines LabelSet: the labels that a classifier learns, in the order of its outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

enum class Problem { kSingleLabel, kMultiLabel, kRegression };

// Returns Hugging Face's problem_type: single_label_classification, multi_label_classification or regression.
std::string_view name_of(Problem problem);
// Returns nullopt when no problem type has this name.
std::optional<Problem> problem_named(std::string_view name);

struct LabelSet {
  Problem problem = Problem::kSingleLabel;
  std::vector<std::string> id2label;  // the label names by number
  // What lists in the label column contain. true: one 0 or 1 for each label. false: names or numbers of labels.
  // nullopt: each data set's lists decide (LabelScan::yes_or_no). Set only when there are one or two labels.
  std::optional<bool> lists_are_yes_or_no = {};

  int64_t size() const { return static_cast<int64_t>(id2label.size()); }
  const std::string& name(int64_t k) const { return id2label[static_cast<size_t>(k)]; }
  // Returns the size of Example::classes of a row with a label.
  int64_t classes_per_row() const { return problem == Problem::kSingleLabel ? 1 : size(); }
  // Returns the names of a row's labels, such as "admin" or "admin, net" ("none" for no label), or the numbers of a
  // regression.
  std::string describe(const std::vector<float>& classes) const;

  bool operator==(const LabelSet&) const = default;
};

// Return the names that Transformers gives to labels without names: LABEL_0, LABEL_1, ...
std::string default_label(int64_t number);
std::vector<std::string> default_labels(int64_t count);

// Throws UserError, starting with `where`, when id2label has a name twice.
void check_unique(const std::vector<std::string>& id2label, const std::string& where);

}  // namespace fettle
