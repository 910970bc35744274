#include "data/message_lists.h"

#include <algorithm>
#include <array>

#include "base/json_text.h"
#include "base/text.h"
#include "data/formats.h"
#include "data/messages.h"
#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

bool is_message(const ordered_json& value, const MessageNames& names) {
  const ordered_json* role = value.is_object() ? find_column(value, names.role) : nullptr;
  return role && role->is_string() && names.roles.contains(role->get<std::string>()) &&
         std::ranges::any_of(std::array<std::string, 3>{names.content, "tool_calls", "function_call"},
                             [&](const std::string& field) { return value.contains(field); });
}

bool has_only_messages(const ordered_json& list, const DataSource& source) {
  return !list.empty() && std::ranges::any_of(std::array{false, true}, [&](bool sharegpt) {
    const MessageNames names = message_names(source, sharegpt);
    return std::ranges::all_of(list, [&](const ordered_json& value) { return is_message(value, names); });
  });
}

// Returns whether the column has a text that may be the JSON text of a list.
bool may_be_list(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  return value && value->is_string() && trimmed(value->get_ref<const std::string&>()).starts_with('[');
}

// Requires that a text is not a list of messages as Python writes it, such as [{'role': 'user', 'content': 'Hi'}].
// pandas writes lists to CSV files in this way.
void refuse_python(const std::string& text, const std::string& column) {
  const auto has = [&](std::string_view key) { return text.find(key) != std::string::npos; };
  if (trimmed(text).starts_with("[{'") && trimmed(text).ends_with(']') &&
      ((has("'role':") && has("'content':")) || (has("'from':") && has("'value':"))))
    bad_row("'{}' has messages as Python prints them, not as JSON; write the column with json.dumps", column);
}

}  // namespace

void parse_message_lists(ordered_json& row, const DataSource& source, bool labelled) {
  const auto parse = [&](const std::string& column, bool any_list) {
    if (!may_be_list(row, column)) return;
    const std::string text = row[column];
    const auto list = parse_json_or_discard<ordered_json>(text);
    if (list.is_discarded()) refuse_python(text, column);
    if (list.is_array() && (any_list || has_only_messages(list, source)))
      row[column] = json_of_text(text, "'" + column + "'");
  };
  parse(turns_column(row, source), true);
  if (labelled) return;
  if (source.formatting.empty())
    for (const char* column : {"prompt", "completion"}) parse(column, false);
  for (const char* column : {"chosen_messages", "rejected_messages"}) parse(column, false);
  for (const char* which : {"chosen", "rejected"}) parse(source.column(which, which), false);
}

}  // namespace fettle
