#include "data/guessed_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kReplies[] = {"response", "output", "completion", "reply", "answer", "solution"};
constexpr std::string_view kPrompts[] = {"question", "prompt", "query", "instruction", "problem", "input"};
// In the names of columns, `solution` comes first: with expected_answer beside generated_solution, it is the reply.
constexpr std::string_view kPartsOfReplies[] = {"solution", "response", "reply", "output", "completion", "answer"};
constexpr std::string_view kBesidePrompts[] = {"context", "input"};
constexpr std::string_view kReasoning[] = {"solution", "rationale", "reasoning"};

// The columns of a row that have no meaning yet.
class Columns {
 public:
  void add(const std::string& name) { left_.push_back(name); }
  size_t size() const { return left_.size(); }
  const std::string& front() const { return left_.front(); }
  const std::string& back() const { return left_.back(); }
  template <typename Condition>
  void remove_if(Condition condition) {
    std::erase_if(left_, condition);
  }

  // Removes the first column with one of the names, in upper or lower case, and returns it; "" when there is none.
  std::string take(std::span<const std::string_view> names) {
    return take_if(names, [](const std::string& column, std::string_view name) { return column == name; });
  }
  // Does the same for a column that has one of the names in its name. A column such as expected_answer has a short
  // answer for checks, so it does not count.
  std::string take_part(std::span<const std::string_view> names) {
    return take_if(names, [](const std::string& column, std::string_view name) {
      return column.find(name) != std::string::npos && !column.starts_with("expected");
    });
  }

 private:
  template <typename Match>
  std::string take_if(std::span<const std::string_view> names, Match match) {
    for (const std::string_view name : names) {
      const auto found =
          std::ranges::find_if(left_, [&](const auto& column) { return match(lower_case(column), name); });
      if (found == left_.end()) continue;
      std::string column = *found;
      left_.erase(found);
      return column;
    }
    return "";
  }

  std::vector<std::string> left_;
};

bool is_json_text(const ordered_json& value) {
  if (!value.is_string()) return false;
  const std::string_view text = trimmed(value.get_ref<const std::string&>());
  return text.starts_with('[') || text.starts_with('{');
}

}  // namespace

bool is_about_the_row(std::string_view column) {
  static constexpr std::string_view kNames[] = {"id",         "idx",           "index",       "key",
                                                "uid",        "uuid",          "qid",         "question_id",
                                                "row_id",     "sample_id",     "example_id",  "url",
                                                "source",     "dataset",       "origin",      "license",
                                                "author",     "date",          "timestamp",   "created_at",
                                                "updated_at", "split",         "lang",        "language",
                                                "category",   "categories",    "topic",       "subject",
                                                "domain",     "tag",           "tags",        "keywords",
                                                "type",       "question_type", "answer_type", "difficulty",
                                                "level",      "grade",         "score",       "rating",
                                                "quality",    "meta",          "metadata",    "__index_level_0__"};
  const std::string name = lower_case(std::string(column));
  return name.starts_with("unnamed: ") || std::ranges::find(kNames, name) != std::end(kNames);
}

void refuse_columns(const ordered_json& row) {
  std::vector<std::string> names;
  Columns left;
  for (const auto& item : row.items()) {
    names.push_back(item.key());
    if (!is_about_the_row(item.key())) left.add(item.key());
  }
  static constexpr std::string_view kSystem[] = {"system", "system_prompt", "system_message"};
  static constexpr std::string_view kTools[] = {"tools", "functions"}, kHistory[] = {"history"};
  const std::string system = left.take(kSystem), tools = left.take(kTools), history = left.take(kHistory);
  left.remove_if([&](const std::string& name) { return row[name].is_structured(); });  // neither a prompt nor a reply
  std::string reply = left.take(kReplies), prompt = left.take(kPrompts);
  if (reply.empty()) reply = left.take_part(kPartsOfReplies);
  if (prompt.empty()) prompt = left.take_part(kPrompts);
  const std::string query = prompt.empty() ? "" : left.take(kBesidePrompts);
  const std::string known = fmt::format(
      "no known format has the columns [{}]; known are messages, conversations, instruction + output, query + "
      "response, question + answer, prompt + completion, text, content, input_ids",
      fmt::join(names, ", "));
  if (!tools.empty() && !reply.empty() && is_json_text(row[reply]))
    bad_row(
        "{}. The calls in '{}' would be trained as text; write the rows as {{\"conversations\": [{{\"from\": "
        "\"human\", \"value\": ...}}, {{\"from\": \"function_call\", \"value\": ...}}], \"tools\": ...}}",
        known, reply);
  std::string only_answer;
  if (lower_case(reply) == "answer")
    if (const std::string reasoning = left.take(kReasoning); !reasoning.empty() && has_content(row, reasoning)) {
      only_answer = fmt::format("; to train the short answer alone, write \"response\": \"{}\"", reply);
      reply = reasoning;
    }
  const bool certain = left.size() == static_cast<size_t>(reply.empty()) + static_cast<size_t>(prompt.empty());
  if (reply.empty()) reply = certain ? left.back() : "...";
  if (prompt.empty()) prompt = certain ? left.front() : "...";
  std::string columns = fmt::format("\"prompt\": \"{}\"", prompt);
  const auto add = [&](const char* part, const std::string& column) {
    if (!column.empty()) columns += fmt::format(", \"{}\": \"{}\"", part, column);
  };
  add("query", query);
  add("response", reply);
  if (!system.empty() && !row[system].is_structured()) add("system", system);
  add("tools", tools);
  if (!history.empty() && (!row[history].is_string() || is_json_text(row[history]))) add("history", history);
  bad_row(
      "{}. Name your columns in an entry of dataset_info.json or of `dataset`, for example {{\"file_name\": \"...\", "
      "\"columns\": {{{}}}}}{}",
      known, columns, only_answer);
}

}  // namespace fettle
