#include "data/classes/class_rows.h"

#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"
#include "data/formats.h"
#include "data/read/columns.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Names of the columns with two texts in GLUE, SuperGLUE and similar data sets.
constexpr std::pair<const char*, const char*> kTwoTexts[] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"}, {"question", "sentence"},
    {"question", "passage"},    {"question", "context"},   {"query", "passage"},       {"query", "document"},
    {"text", "text_pair"},      {"text1", "text2"},        {"text_a", "text_b"}};
constexpr const char* kTexts[] = {"text",     "sentence", "content", "instruction", "prompt",  "review",
                                  "question", "query",    "input",   "description", "document"};
constexpr const char* kLabels[] = {"label", "labels", "class", "category", "score"};

std::string text_of_column(const ordered_json& row, const std::string& column) {
  if (!row.contains(column)) throw BadRow(missing_column(row, column));
  const ordered_json* value = find_column(row, column);
  return value ? text_of(*value, column) : "";
}

bool is_integer(std::string_view text) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.size() < 16 &&
         text.find_first_not_of("0123456789", digits) == std::string_view::npos;
}

// Returns the decimal number that the whole text spells; nullopt for other texts, also for nan and infinity.
std::optional<double> number_of(std::string_view text) {
  if (text.find_first_not_of("+-.0123456789eE") != std::string_view::npos) return std::nullopt;
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

ClassTexts read_class_texts(const ordered_json& row, const DataSource& source) {
  ClassTexts out;
  if (const std::string text = source.column("text"); !text.empty()) {
    out.first = text_of_column(row, text);
    if (const std::string second = source.column("text_pair"); !second.empty())
      out.second = text_of_column(row, second);
    return out;
  }
  if (is_conversation(row, source)) {
    Sample sample = read_turns(row, source);
    out.messages = std::move(sample.messages);
    out.tools_json = std::move(sample.tools_json);
    out.variables_json = read_variables(row);
    return out;
  }
  if (const std::string prompt = source.column("prompt"); !prompt.empty()) {
    out.first = text_of_column(row, prompt);
    if (const std::string query = source.column("query"); !query.empty() && has_column(row, query))
      out.first += (out.first.empty() ? "" : "\n") + text_of_column(row, query);
    return out;
  }
  for (const auto& [first, second] : kTwoTexts) {
    if (!has_column(row, first) || !has_column(row, second)) continue;
    out.first = text_of_column(row, first);
    out.second = text_of_column(row, second);
    return out;
  }
  for (const std::string column : kTexts) {
    if (!has_column(row, column)) continue;
    out.first = text_of_column(row, column);
    if (column == "instruction" && has_column(row, "input")) {
      const std::string input = text_of_column(row, "input");
      if (!out.first.empty() && !input.empty()) out.first += "\n";
      out.first += input;
    }
    return out;
  }
  std::vector<std::string> columns;
  for (const auto& item : row.items()) columns.push_back(item.key());
  throw BadRow(
      fmt::format("the columns [{}] hold no text to classify; known columns are {}, pairs such as sentence1 and "
                  "sentence2, and messages; set columns.text in dataset_info.json to your column",
                  fmt::join(columns, ", "), fmt::join(kTexts, ", ")));
}

std::string label_column(const ordered_json& row, const DataSource& source) {
  if (const std::string named = source.column("label"); !named.empty()) return row.contains(named) ? named : "";
  for (const char* column : kLabels)
    if (row.contains(column)) return column;
  return "";
}

bool has_cells(const std::string& where) {
  const std::string kind = kind_of(where.substr(0, where.rfind(':')));
  return kind == ".csv" || kind == ".tsv";
}

ordered_json label_value(const ordered_json& row, const DataSource& source, bool cell) {
  const std::string column = label_column(row, source);
  if (column.empty()) return nullptr;
  const ordered_json& value = row[column];
  if (value == -100) return nullptr;
  if (!value.is_string()) return value;
  const std::string inner(trimmed(value.get_ref<const std::string&>()));
  if (inner.empty() || inner == "-100") return nullptr;
  if (inner[0] == '[')
    if (auto list = parse_json_or_discard<ordered_json>(inner); list.is_array()) return list;
  return cell ? ordered_json(inner) : value;
}

LabelWord label_word(const ordered_json& value, bool cell) {
  using Kind = LabelWord::Kind;
  if (value.is_boolean()) return {Kind::kInteger, false, value.get<bool>() ? 1.0 : 0.0, value.get<bool>() ? "1" : "0"};
  if (value.is_number_integer()) return {Kind::kInteger, false, value.get<double>(), value.dump()};
  if (value.is_number()) return {Kind::kReal, false, value.get<double>(), value.dump()};
  if (!value.is_string())
    throw BadRow(fmt::format("a label must be a name or a number, but this is {}", value.dump().substr(0, 80)));
  LabelWord word{Kind::kName, true, 0, value.get<std::string>()};
  if (const std::optional<double> number = cell ? number_of(word.text) : std::nullopt) {
    word.kind = is_integer(word.text) ? Kind::kInteger : Kind::kReal;
    word.number = *number;
  }
  return word;
}

}  // namespace fettle
