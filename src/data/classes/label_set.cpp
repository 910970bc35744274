#include "data/classes/label_set.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "config/nearest.h"
#include "data/classes/class_rows.h"
#include "data/formats.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string shown(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace).substr(0, 80);
}

// The first names, and how many more there are.
std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return names.size() > kShown ? fmt::format("{} and {} more", fmt::join(some, ", "), names.size() - kShown)
                               : fmt::format("{}", fmt::join(some, ", "));
}

}  // namespace

Problem problem_of(const Recipe& recipe) {
  if (recipe.problem_type == "single_label_classification") return Problem::kSingleLabel;
  if (recipe.problem_type == "multi_label_classification") return Problem::kMultiLabel;
  internal_check(recipe.problem_type == "regression", "the labels are not settled: problem_type is '{}'",
                 recipe.problem_type);
  return Problem::kRegression;
}

LabelSet::LabelSet(const Recipe& recipe, bool yes_or_no)
    : problem_(problem_of(recipe)), yes_or_no_(yes_or_no), names_(recipe.id2label) {
  for (int64_t k = 0; k < size(); ++k) {
    number_of_name_.emplace(name(k), k);
    named_by_numbers_ |= label_word(name(k), true).kind != LabelWord::Kind::kName;
  }
}

int64_t LabelSet::number_of(const ordered_json& value, bool cell) const {
  const LabelWord word = label_word(value, cell);
  if (const auto found = number_of_name_.find(word.text); found != number_of_name_.end()) return found->second;
  const bool whole = word.kind != LabelWord::Kind::kName && std::floor(word.number) == word.number;
  if (whole)
    if (const auto found = number_of_name_.find(fmt::format("{:.0f}", word.number)); found != number_of_name_.end())
      return found->second;
  const bool by_number = whole && !named_by_numbers_;
  if (by_number && word.number >= 0 && word.number < static_cast<double>(size()))
    return static_cast<int64_t>(word.number);
  if (by_number)
    throw BadRow(fmt::format(
        "the label {} is outside of the {} labels, whose numbers are 0 to {}; mend the row, or raise num_labels",
        shown(value), size(), size() - 1));
  if (word.kind != LabelWord::Kind::kName && !whole)
    throw BadRow(fmt::format(
        "the label {} is no whole number, and problem_type is {}: labels are names or whole numbers; mend "
        "the row, or set problem_type: regression to learn numbers",
        shown(value), problem_ == Problem::kMultiLabel ? "multi_label_classification" : "single_label_classification"));
  const auto near =
      word.kind == LabelWord::Kind::kName ? nearest(word.text, {names_.begin(), names_.end()}) : std::nullopt;
  throw BadRow(
      fmt::format("the label {} is not among the {} labels{}: {}; mend the row, or name all labels in id2label",
                  shown(value), size(), near ? fmt::format(" (did you mean '{}'?)", *near) : "", list_of(names_)));
}

std::vector<float> LabelSet::several(const ordered_json& value) const {
  if (!value.is_array())
    throw BadRow(
        fmt::format("the label {} stands alone, and problem_type is multi_label_classification: a list is wanted, "
                    "as [{}]; for one label a row leave problem_type out, or set single_label_classification",
                    shown(value), shown(value)));
  std::vector<float> out(static_cast<size_t>(size()), 0);
  // The file may have changed since its lists were counted.
  const bool bits = yes_or_no_ && value.size() == out.size();
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_null()) throw BadRow(fmt::format("a label of {} is null", shown(value)));
    if (bits) {
      out[i] = static_cast<float>(label_word(value[i], false).number);
      continue;
    }
    float& said = out[static_cast<size_t>(number_of(value[i], false))];
    if (said != 0 && !value[i].is_string())
      throw BadRow(
          fmt::format("the label {} has a number twice: it is read as numbers of labels, since not every list of the "
                      "data set is a 0 or 1 for each of the {} labels; mend the row, or those",
                      shown(value), size()));
    said = 1;
  }
  return out;
}

std::vector<float> LabelSet::numbers(const ordered_json& value, bool cell) const {
  const ordered_json list = value.is_array() ? value : ordered_json::array({value});
  std::vector<float> out;
  for (const auto& one : list) {
    const LabelWord word = label_word(one, cell && !value.is_array());
    if (word.kind == LabelWord::Kind::kName)
      throw BadRow(fmt::format("the label {} is no number, and problem_type is regression", shown(value)));
    out.push_back(static_cast<float>(word.number));
    if (!std::isfinite(out.back())) throw BadRow(fmt::format("the label {} is too large a number", shown(value)));
  }
  if (std::ssize(out) != size())
    throw BadRow(fmt::format("the label {} has {} numbers, and num_labels is {}", shown(value), out.size(), size()));
  return out;
}

std::vector<float> LabelSet::classes(const ordered_json& row, const DataSource& source,
                                     const std::string& where) const {
  const bool cell = has_cells(where);
  const ordered_json value = label_value(row, source, cell);
  if (value.is_null()) return {};
  switch (problem_) {
    case Problem::kMultiLabel: return several(value);
    case Problem::kRegression: return numbers(value, cell);
    case Problem::kSingleLabel: break;
  }
  if (value.is_array())
    throw BadRow(
        fmt::format("the label {} is a list, and problem_type is single_label_classification: one name or number "
                    "is wanted; for several labels a row set problem_type: multi_label_classification",
                    shown(value)));
  return {static_cast<float>(number_of(value, cell))};
}

std::string LabelSet::describe(const std::vector<float>& classes) const {
  std::vector<std::string> words;
  if (problem_ == Problem::kSingleLabel) return name(static_cast<int64_t>(classes[0]));
  for (size_t k = 0; k < classes.size(); ++k) {
    if (problem_ == Problem::kRegression) words.push_back(fmt::format("{}", classes[k]));
    if (problem_ == Problem::kMultiLabel && classes[k] != 0) words.push_back(names_[k]);
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace fettle
