#include "data/classes/label_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "config/nearest.h"
#include "data/classes/class_rows.h"
#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string shown(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace).substr(0, 80);
}

// Lists the first names, and says how many more there are.
std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return names.size() > kShown ? fmt::format("{} and {} more", fmt::join(some, ", "), names.size() - kShown)
                               : fmt::format("{}", fmt::join(some, ", "));
}

}  // namespace

LabelReader::LabelReader(LabelSet labels, bool yes_or_no) : labels_(std::move(labels)), yes_or_no_(yes_or_no) {
  for (int64_t k = 0; k < labels_.size(); ++k) {
    number_of_name_.emplace(labels_.name(k), k);
    named_by_numbers_ |= label_word(labels_.name(k), true).kind != LabelWord::Kind::kName;
  }
}

int64_t LabelReader::number_of(const ordered_json& value, bool cell) const {
  const LabelWord word = label_word(value, cell);
  if (const auto found = number_of_name_.find(word.text); found != number_of_name_.end()) return found->second;
  const bool whole = word.kind != LabelWord::Kind::kName && std::floor(word.number) == word.number;
  if (whole)
    if (const auto found = number_of_name_.find(fmt::format("{:.0f}", word.number)); found != number_of_name_.end())
      return found->second;
  const bool by_number = whole && !named_by_numbers_;
  if (by_number && word.number >= 0 && word.number < static_cast<double>(labels_.size()))
    return static_cast<int64_t>(word.number);
  if (by_number)
    throw BadRow(
        fmt::format("the label {} is not one of the {} labels, which are numbered 0 to {}; correct the row, or raise "
                    "num_labels",
                    shown(value), labels_.size(), labels_.size() - 1));
  if (word.kind != LabelWord::Kind::kName && !whole)
    throw BadRow(fmt::format(
        "the label {} is not a whole number, but problem_type is {}, whose labels are names or whole numbers; correct "
        "the row, or set problem_type: regression to learn numbers",
        shown(value), name_of(labels_.problem)));
  const auto near = word.kind == LabelWord::Kind::kName
                        ? nearest(word.text, {labels_.id2label.begin(), labels_.id2label.end()})
                        : std::nullopt;
  throw BadRow(fmt::format(
      "the label {} is not among the {} labels{}: {}; correct the row, or name all labels in id2label", shown(value),
      labels_.size(), near ? fmt::format(" (did you mean '{}'?)", *near) : "", list_of(labels_.id2label)));
}

std::vector<float> LabelReader::several(const ordered_json& value) const {
  if (!value.is_array())
    throw BadRow(
        fmt::format("the label {} is not a list, but problem_type is multi_label_classification, which wants a list "
                    "such as [{}]; for one label per row, remove problem_type or set single_label_classification",
                    shown(value), shown(value)));
  std::vector<float> out(static_cast<size_t>(labels_.size()), 0);
  // The file may have changed after its lists were scanned, so the size is checked again.
  const bool bits = yes_or_no_ && value.size() == out.size();
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_null()) throw BadRow(fmt::format("the list of labels {} has a null in it", shown(value)));
    if (bits) {
      out[i] = static_cast<float>(label_word(value[i], false).number);
      continue;
    }
    float& said = out[static_cast<size_t>(number_of(value[i], false))];
    if (said != 0 && !value[i].is_string())
      throw BadRow(fmt::format(
          "the list of labels {} has a number twice. Its numbers are read as label numbers, because not every list of "
          "the data set holds one 0 or 1 for each of the {} labels; correct this row, or the other rows",
          shown(value), labels_.size()));
    said = 1;
  }
  return out;
}

std::vector<float> LabelReader::numbers(const ordered_json& value, bool cell) const {
  const ordered_json list = value.is_array() ? value : ordered_json::array({value});
  std::vector<float> out;
  for (const auto& one : list) {
    const LabelWord word = label_word(one, cell && !value.is_array());
    if (word.kind == LabelWord::Kind::kName)
      throw BadRow(fmt::format("the label {} is not a number, but problem_type is regression", shown(value)));
    out.push_back(static_cast<float>(word.number));
    if (!std::isfinite(out.back()))
      throw BadRow(fmt::format("the label {} is too large for a 32-bit float", shown(value)));
  }
  if (std::ssize(out) != labels_.size())
    throw BadRow(
        fmt::format("the label {} has {} numbers, but num_labels is {}", shown(value), out.size(), labels_.size()));
  return out;
}

std::vector<float> LabelReader::classes(const ordered_json& row, const DataSource& source,
                                        const std::string& where) const {
  const bool cell = has_cells(where);
  const ordered_json value = label_value(row, source, cell);
  if (value.is_null()) return {};
  switch (labels_.problem) {
    case Problem::kMultiLabel: return several(value);
    case Problem::kRegression: return numbers(value, cell);
    case Problem::kSingleLabel: break;
  }
  if (value.is_array())
    throw BadRow(
        fmt::format("the label {} is a list, but problem_type is single_label_classification, which wants one name or "
                    "number; for several labels per row, set problem_type: multi_label_classification",
                    shown(value)));
  const LabelWord word = label_word(value, cell);
  if (word.kind != LabelWord::Kind::kName && word.number == -1 && !number_of_name_.contains("-1") &&
      !number_of_name_.contains(word.text))
    return {};
  return {static_cast<float>(number_of(value, cell))};
}

}  // namespace fettle
