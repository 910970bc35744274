#include "data/read/columns.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "base/text.h"

namespace fettle {

using nlohmann::ordered_json;

const ordered_json* find_column(const ordered_json& row, const std::string& column) {
  if (column.empty()) return nullptr;
  const auto found = row.find(column);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

const ordered_json* find_any_column(const ordered_json& row, const std::vector<std::string>& columns) {
  for (const std::string& column : columns)
    if (const ordered_json* value = find_column(row, column)) return value;
  return nullptr;
}

bool has_content(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  if (!value || (value->is_structured() && value->empty())) return false;
  return !value->is_string() || !is_blank(value->get_ref<const std::string&>());
}

std::optional<bool> truth_of(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>();
  const std::string text =
      value.is_string() ? lower_case(std::string(trimmed(value.get_ref<const std::string&>()))) : "";
  if (text != "true" && text != "false") return std::nullopt;
  return text == "true";
}

std::string missing_column(const ordered_json& row, const std::string& column) {
  if (row.is_object() && row.contains(column)) return fmt::format("the column '{}' is null", column);
  constexpr size_t kShown = 12;
  std::string names;
  size_t count = 0;
  if (row.is_object())
    for (const auto& [name, value] : row.items())
      if (++count <= kShown) names += (names.empty() ? "" : ", ") + name;
  if (count > kShown) names += fmt::format(" and {} more", count - kShown);
  return fmt::format("the column '{}' is missing; the row has {}", column, names.empty() ? "no columns" : names);
}

std::string text_of(const ordered_json& value, const std::string& what) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer() || value.is_boolean()) return value.dump();
  if (value.is_number())
    bad_row(
        "{} is the number {}, but Fettle cannot tell how the file writes it (4.50 or 4.5?); put it in quotes, as the "
        "model should read it",
        what, value.dump());
  bad_row("{} must be a text, but it is {}", what, value.type_name());
}

std::string text_column(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  return value ? text_of(*value, "'" + column + "'") : "";
}

ordered_json json_of_text(const std::string& text, const std::string& what) {
  ordered_json value = parse_json_or_discard<ordered_json>(text);
  if (value.is_discarded()) return value;
  if (const auto large = large_integers(text); !large.empty())
    bad_row("{} has the integer {}, which has more than 64 bits; write it in quotes, as a string", what, large[0]);
  return value;
}

ordered_json list_of(const ordered_json& value, const std::string& what) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  if (is_blank(text)) return ordered_json::array();
  ordered_json list = json_of_text(text, what);
  if (list.is_discarded()) bad_row("{} is a text, but not valid JSON", what);
  return list;
}

}  // namespace fettle
