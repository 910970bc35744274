#include "data/classes/class_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"
#include "data/formats.h"
#include "data/read/columns.h"
#include "data/read/data_files.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Names of the columns with two texts in GLUE, SuperGLUE and similar data sets.
constexpr std::pair<const char*, const char*> kTwoTexts[] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"}, {"question", "sentence"},
    {"question", "passage"},    {"question", "context"},   {"query", "passage"},       {"query", "document"},
    {"text", "text_pair"},      {"text1", "text2"},        {"text_a", "text_b"},       {"sentence_A", "sentence_B"}};
// Names of columns with two texts, which count only if the row has no column that usually has the one text.
constexpr std::pair<const char*, const char*> kAskedAndAnswered[] = {
    {"question", "answer"}, {"prompt", "response"}, {"prompt", "completion"}, {"query", "response"}};
constexpr const char* kOneText[] = {"text", "sentence", "content", "instruction"};
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

// Returns whether the text is probably a list in another form than JSON: a list of Python (['a', 'b']) or of numpy
// ([0 1]). A name may be in brackets too, such as [other] or [Paris, France].
bool looks_like_list(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  const std::string_view inner = trimmed(text.substr(1, text.size() - 2));
  const bool numbers = inner.find_first_not_of("+-.,0123456789 \t\n") == std::string_view::npos &&
                       inner.find_first_of("0123456789") != std::string_view::npos;
  return numbers || inner.starts_with('\'') || inner.starts_with('"');
}

// Reads a list of Python, such as ['joy', "it's", 1, True]. Returns nullopt for other texts.
std::optional<ordered_json> read_python_list(std::string_view text) {
  ordered_json out = ordered_json::array();
  size_t at = 1;
  const auto skip = [&] { at = std::min(text.find_first_not_of(" \t\n", at), text.size()); };
  for (skip(); at < text.size() && text[at] != ']'; skip()) {
    if (!out.empty() && text[at++] != ',') return std::nullopt;
    skip();
    if (at < text.size() && text[at] == ']' && !out.empty()) break;  // a comma may follow the last item
    if (at >= text.size()) return std::nullopt;
    if (const char quote = text[at]; quote == '\'' || quote == '"') {
      std::string word;
      for (++at; at < text.size() && text[at] != quote; ++at) {
        // Other escapes, such as \n, are rare in names. The caller reports such a text.
        if (text[at] == '\\' &&
            (++at == text.size() || std::string_view("\\'\"").find(text[at]) == std::string_view::npos))
          return std::nullopt;
        word += text[at];
      }
      if (at++ >= text.size()) return std::nullopt;
      out.push_back(word);
      continue;
    }
    const size_t end = std::min(text.find_first_of(",]", at), text.size());
    const std::string word(trimmed(text.substr(at, end - at)));
    ordered_json value = word == "True"    ? ordered_json(true)
                         : word == "False" ? ordered_json(false)
                                           : parse_json_or_discard<ordered_json>(word);
    if (!value.is_number() && !value.is_boolean()) return std::nullopt;
    out.push_back(std::move(value));
    at = end;
  }
  return at + 1 == text.size() ? std::optional(out) : std::nullopt;
}

// Returns whether the row has messages. Without an entry that says so, another value than a list may be, for example,
// the number of a conversation.
bool has_messages(const ordered_json& row, const DataSource& source) {
  if (!source.formatting.empty() || source.columns.contains("messages")) return is_conversation(row, source);
  const ordered_json* messages = find_column(row, turns_column(row, source));
  return messages && messages->is_array();
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
  if (has_messages(row, source)) {
    out.conversation = read_turns(row, source).conversation;
    out.conversation.variables_json = read_variables(row);
    return out;
  }
  if (const std::string prompt = source.column("prompt"); !prompt.empty()) {
    out.first = text_of_column(row, prompt);
    if (const std::string query = source.column("query"); !query.empty() && has_column(row, query))
      out.first += (out.first.empty() ? "" : "\n") + text_of_column(row, query);
    return out;
  }
  const std::string label = label_column(row, source);
  const auto take_two = [&](const std::pair<const char*, const char*>& names) {
    const auto& [first, second] = names;
    if (!has_column(row, first) || !has_column(row, second) || second == label) return false;
    out.first = text_of_column(row, first);
    out.second = text_of_column(row, second);
    return true;
  };
  if (std::ranges::any_of(kTwoTexts, take_two)) return out;
  const bool has_one = std::ranges::any_of(kOneText, [&](const char* column) { return has_column(row, column); });
  if (!has_one && std::ranges::any_of(kAskedAndAnswered, take_two)) return out;
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
  const std::string kind = kind_of(file_of_place(where));
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
  if (looks_like_list(inner)) {
    if (auto list = read_python_list(inner)) return *std::move(list);
    bad_row("the label {} looks like a list, but is not JSON; write [\"joy\", \"love\"]", inner.substr(0, 80));
  }
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
