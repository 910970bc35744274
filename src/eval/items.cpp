#include "eval/items.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "data/chosen_rows.h"
#include "data/formats.h"
#include "data/introduce.h"
#include "data/message_lists.h"
#include "data/messages.h"
#include "data/read/columns.h"
#include "data/read/data_files.h"
#include "data/read/media.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string> kQuestionColumns = {"question", "query", "prompt", "input"};
const std::vector<std::string> kAnswerColumns = {"answer", "answerKey", "target", "gold", "label"};
const std::string kLetters = "ABCDEFGHIJ";

std::string question_of(const ordered_json& row) {
  const ordered_json* value = find_any_column(row, kQuestionColumns);
  if (!value) bad_row("there is no question: the row needs a column {}", fmt::join(kQuestionColumns, " or "));
  std::string text = text_of(*value, "the question");
  if (text.empty()) bad_row("the question is empty");
  return text;
}

struct Choices {
  std::vector<std::string> texts, labels;  // labels of the choices: those in the row, else A, B, ...
};

std::vector<std::string> texts_of(const ordered_json& list, const char* what) {
  std::vector<std::string> out;
  for (const ordered_json& one : list) out.push_back(text_of(one, what));
  return out;
}

Choices choices_of(const ordered_json& row) {
  Choices out;
  if (const ordered_json* given = find_any_column(row, {"choices", "options"})) {
    const bool labelled = given->is_object() && given->contains("text");
    const ordered_json& list = labelled ? (*given)["text"] : *given;
    if (!list.is_array()) bad_row("'choices' must be a list of texts, but it is {}", list.type_name());
    out.texts = texts_of(list, "a choice");
    if (labelled && given->contains("label")) out.labels = texts_of((*given)["label"], "a choice's label");
  } else {
    for (char letter : kLetters)
      if (const ordered_json* value = find_column(row, std::string(1, letter)))
        out.texts.push_back(text_of(*value, "a choice"));
      else
        break;
  }
  if (out.texts.size() < 2) bad_row("found {} choices, wanted two or more", out.texts.size());
  if (out.texts.size() > kLetters.size())
    bad_row("found {} choices, wanted at most {}", out.texts.size(), kLetters.size());
  if (std::ranges::any_of(out.texts, &std::string::empty)) bad_row("one of the choices is empty");
  if (out.labels.empty())
    for (size_t i = 0; i < out.texts.size(); ++i) out.labels.push_back(std::string(1, kLetters[i]));
  if (out.labels.size() != out.texts.size())
    bad_row("found {} choices but {} labels; wanted one label for each choice", out.texts.size(), out.labels.size());
  return out;
}

size_t answer_of(const ordered_json& row, const Choices& choices) {
  const ordered_json* value = find_any_column(row, kAnswerColumns);
  if (!value) bad_row("there is no answer: the row needs a column {}", fmt::join(kAnswerColumns, " or "));
  const std::string text = text_of(*value, "the answer");
  for (const auto* names : {&choices.labels, &choices.texts})
    if (const auto found = std::ranges::find(*names, text); found != names->end() && !value->is_number())
      return static_cast<size_t>(found - names->begin());
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number < choices.texts.size()) return number;
  bad_row("the answer '{}' is not one of the choices; wanted a label ({} to {}), a number (0 to {}) or a choice's text",
          text, choices.labels.front(), choices.labels.back(), choices.texts.size() - 1);
}

// Returns whether the chat template decides about the text of this reply.
bool has_form_of_template(const Message& reply) {
  return has_calls_or_thought(reply) || reply.content.find("</think>") != std::string::npos;
}

// Returns the first row of a CSV or TSV file that has no header line. (read_rows took this row for the header.) Returns
// {} for other files. `first` is the first row that read_rows gave.
std::vector<std::string> headless_row(const DataSource& source, const ordered_json& first) {
  const std::string kind = source.files.empty() ? "" : kind_of(source.files[0]);
  if ((kind != ".csv" && kind != ".tsv") || first.size() < 4) return {};
  std::vector<std::string> columns;
  for (const auto& item : first.items()) columns.push_back(item.key());
  const bool answered =
      columns.back().size() == 1 && kLetters.substr(0, columns.size() - 2).find(columns.back()) != std::string::npos;
  return answered && !first.contains("A") ? columns : std::vector<std::string>{};
}

// Makes a row from `values`: the question, then the choices A, B, ..., then the answer.
ordered_json named(const std::vector<std::string>& values) {
  ordered_json out{{"question", values.front()}, {"answer", values.back()}};
  for (size_t i = 1; i + 1 < values.size(); ++i) out[std::string(1, kLetters[i - 1])] = values[i];
  return out;
}

// Calls `take` with each row and the row's "file:line", for at most DataSpec::most_rows rows. If `take` throws BadRow,
// for_rows throws UserError; with on_bad_row: skip, it skips the row with a warning instead. As in training, a row that
// is skipped counts.
template <typename Take>
void for_rows(const DataSpec& data, const DataSource& source, const Take& take) {
  int64_t left = data.most_rows(source).value_or(INT64_MAX);
  auto one = [&](const std::string& where, const std::function<void()>& body) {
    --left;
    try {
      body();
    } catch (const BadRow& error) {
      if (data.on_bad_row != OnBadRow::kSkip) throw UserError("{}: {}{}", where, error.what(), kSkipHint);
      warn("{}: {}; skipped", where, error.what());
    }
    return left > 0;
  };
  for (const std::filesystem::path& file : source.files) {
    std::vector<std::string> headless;
    bool first = true;
    if (left <= 0) break;
    const auto take_row = [&](Row row) {
      row.parse();
      const std::string where = row_place(file.string(), row.line);
      if (!row.bad.empty()) return one(where, [&] { throw BadRow(row.bad); });
      introduce(data, row.value);
      if (std::exchange(first, false)) {
        headless = headless_row(source, row.value);
        if (!headless.empty() && !one(file.string() + ":1", [&] { take(named(headless), file.string() + ":1"); }))
          return false;
      }
      if (headless.empty())
        return one(where, [&] {
          refuse_media(row.value, source);
          parse_message_lists(row.value, source, data.labels.has_value());
          take(row.value, where);
        });
      std::vector<std::string> values;
      for (const auto& item : row.value.items()) values.push_back(text_of(item.value(), "a field"));
      return one(where, [&] { take(named(values), where); });
    };
    read_rows(file, take_row, data.text_rows(source));
  }
}

}  // namespace

std::string task_name(Task task, const Stage& stage) {
  switch (task) {
    case Task::kRows: return std::string(stage.eval_task);
    case Task::kChoice: return "choice";
    case Task::kLetters: return "letters";
    case Task::kGeneration: return "generation";
  }
  return "";
}

Task task_named(const std::string& name, const Stage& stage) {
  if (name == stage.eval_task) return Task::kRows;
  if (name == "choice") return Task::kChoice;
  if (name == "letters") return Task::kLetters;
  if (name == "generation") return Task::kGeneration;
  throw InternalError("there is no task '{}'", name);
}

Task detect_task(const DataSource& source) {
  Task task = Task::kRows;
  read_rows(source.files.at(0), [&](Row row) {
    row.parse();
    if (!row.bad.empty()) return false;  // the task that reads the row reports what is wrong
    const bool answered = find_any_column(row.value, kAnswerColumns) != nullptr;
    if (answered && find_any_column(row.value, {"choices", "options"}))
      task = Task::kChoice;
    else if ((answered && find_column(row.value, "A") && find_column(row.value, "B")) ||
             !headless_row(source, row.value).empty())
      task = Task::kLetters;
    else if (find_any_column(row.value, {"reference", "references"}))
      task = Task::kGeneration;
    return false;
  });
  return task;
}

bool has_rows_of(const DataSource& source, RowKind kind) {
  bool out = false;
  read_rows(source.files.at(0), [&](Row row) {
    row.parse();
    out = row.bad.empty() && row_reader(kind).has_columns(row.value, source);
    return false;
  });
  return out;
}

std::vector<Question> read_questions(const DataSpec& data, const DataSource& source) {
  std::vector<Question> out;
  for_rows(data, source, [&](const ordered_json& row, const std::string& where) {
    const std::string text = question_of(row);
    Choices choices = choices_of(row);
    const size_t answer = answer_of(row, choices);
    out.push_back({text, std::move(choices.texts), answer, where});
  });
  out = chosen_items(out, source, data);
  if (out.empty()) throw UserError("eval_dataset: {} has no question", source.name);
  return out;
}

std::vector<Prompt> read_prompts(const DataSpec& data, const DataSource& source) {
  std::vector<Prompt> out;
  for_rows(data, source, [&](const ordered_json& row, const std::string& where) {
    Prompt prompt{.where = where};
    const ordered_json* given = find_any_column(row, {"references", "reference"});
    if (!given && find_column(row, "question")) given = find_column(row, "answer");
    if (given) {
      prompt.conversation.messages.push_back({.role = "user", .content = question_of(row)});
      prompt.references = given->is_array() ? texts_of(*given, "a reference")
                                            : std::vector<std::string>{text_of(*given, "the reference")};
      if (prompt.references.empty()) bad_row("'references' is empty: there is nothing to compare with");
    } else {
      Sample sample = read_sample(row, source);
      if (data.plain_text_rows && sample.plain) sample = without_template(std::move(sample));
      switch (sample.kind) {
        case Sample::Kind::kChat: {
          prompt.conversation = std::move(sample.conversation);
          std::vector<Message>& messages = prompt.conversation.messages;
          prompt.references.push_back(messages.back().content);
          if (has_form_of_template(messages.back())) prompt.reply = std::move(messages.back());
          messages.pop_back();
          break;
        }
        case Sample::Kind::kPrompted:
          prompt.references.push_back(std::move(sample.reply));
          prompt.text = std::move(sample.text);
          break;
        case Sample::Kind::kText:
        case Sample::Kind::kTokens:
          bad_row("this row has no reply to compare with; wanted a conversation, or a question with a reference");
      }
    }
    out.push_back(std::move(prompt));
  });
  out = chosen_items(out, source, data);
  if (out.empty()) throw UserError("eval_dataset: {} has no prompt", source.name);
  return out;
}

}  // namespace fettle
