#include "data/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "data/chat/system_message.h"
#include "data/guessed_columns.h"
#include "data/messages.h"
#include "data/read/columns.h"
#include "data/read/media.h"
#include "data/token_rows.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPairRow =
    "the row is a preference pair ('chosen' and 'rejected'); set stage: dpo, rm or kto to train on it";

[[noreturn]] void bad_column(const ordered_json& row, const std::string& column) {
  throw BadRow(missing_column(row, column));
}

// Returns whether `list` is a list whose first item has the field `name`.
bool first_has(const ordered_json& list, const std::string& name) {
  return list.is_array() && !list.empty() && list[0].is_object() && list[0].contains(name);
}

// Returns the column of a conversation's system text or tools. As in LLaMA-Factory, an entry that describes the rows
// has only the columns that it names; "" when it names none.
std::string column_beside(const DataSource& source, const std::string& what) {
  const bool described = !source.formatting.empty() && !source.columns.empty();
  return source.column(what, described ? "" : what);
}

// Returns the tools of a conversation. Without a column of tools, reads OpenAI's former column `functions`.
std::string tools_beside(const ordered_json& row, const DataSource& source) {
  const std::string column = column_beside(source, "tools");
  const ordered_json* functions = find_column(row, "functions");
  const bool former = column == "tools" && !has_column(row, column) && functions && first_has(*functions, "name");
  return tools_of(row, former ? "functions" : column);
}

// Puts the text of the system column before the messages. A system turn of their own takes precedence.
void add_system(std::vector<Message>& messages, const std::string& system) {
  const bool has_own = !messages.empty() && is_system(messages[0].role);
  if (!system.empty() && !has_own) messages.insert(messages.begin(), {.role = "system", .content = system});
}

// Reads a conversation in the column `column`.
Sample conversation(const ordered_json& row, const DataSource& source, const std::string& column, bool sharegpt) {
  Sample sample{.format = sharegpt ? "sharegpt" : "openai"};
  const ordered_json* list = find_column(row, column);
  if (!list) bad_column(row, column);
  sample.conversation.messages = read_messages(*list, column, message_names(source, sharegpt));
  add_system(sample.conversation.messages, text_column(row, column_beside(source, "system")));
  sample.conversation.tools_json = tools_beside(row, source);
  return sample;
}

// Returns whether the row has two replies to one prompt.
bool is_pair(const ordered_json& row, const DataSource& source) {
  return has_column(row, source.column("chosen", "chosen")) && has_column(row, source.column("rejected", "rejected"));
}

[[noreturn]] void refuse_history(const std::string& column, const ordered_json& found) {
  bad_row(
      "'{}' must be a list of [prompt, reply] or of messages, but it has {}; to leave it out, name the other "
      "columns in an entry of dataset_info.json or of `dataset`",
      column, found.dump().substr(0, 120));
}

// Adds the earlier turns in `column` to the messages: a list of [prompt, reply] as in Alpaca's format, or of messages.
void add_history(std::vector<Message>& messages, const ordered_json& row, const std::string& column,
                 const DataSource& source) {
  const ordered_json* value = find_column(row, column);
  if (!value || (value->is_string() && is_blank(value->get_ref<const std::string&>()))) return;
  const ordered_json turns = value->is_string() ? json_of_text(value->get<std::string>(), "'" + column + "'") : *value;
  if (!turns.is_array()) refuse_history(column, *value);
  if (!turns.empty() && turns[0].is_object()) {
    std::vector<Message> read = read_messages(turns, column, message_names(source, first_has(turns, "from")));
    want_order(read);
    std::ranges::move(read, std::back_inserter(messages));
    return;
  }
  for (const auto& turn : turns) {
    if (!turn.is_array() || turn.size() != 2) refuse_history(column, turn);
    messages.push_back({.role = "user", .content = text_of(turn[0], "'" + column + "'")});
    messages.push_back({.role = "assistant", .content = text_of(turn[1], "'" + column + "'")});
  }
}

Sample alpaca(const ordered_json& row, const DataSource& source) {
  const bool mapped = !source.formatting.empty() && !source.columns.empty();
  auto column = [&](const char* what, const char* usual) { return source.column(what, mapped ? "" : usual); };
  const std::string prompt = column("prompt", "instruction"), response = column("response", "output");
  if (!prompt.empty() && !row.contains(prompt)) bad_column(row, prompt);
  if (response.empty() && source.columns.contains("chosen")) bad_row("{}", kPairRow);
  if (response.empty() && !prompt.empty())  // the entry names only the column `prompt`, so the rows are texts
    return {.kind = Sample::Kind::kText, .text = text_column(row, prompt), .format = "text"};
  if (response.empty())
    bad_row(
        "the entry names columns, but neither `prompt` and `response` nor `messages` is among them; name the columns "
        "of the rows, or set formatting: text for plain texts");
  Sample sample{.format = "alpaca"};
  if (!row.contains(response) && is_pair(row, source)) bad_row("{}", kPairRow);
  if (!row.contains(response)) bad_column(row, response);
  if (const std::string system = text_column(row, column("system", "system")); !system.empty())
    sample.conversation.messages.push_back({.role = "system", .content = system});
  add_history(sample.conversation.messages, row, column("history", "history"), source);
  std::string user = text_column(row, prompt);
  const std::string input = text_column(row, column("query", "input"));
  if (!user.empty() && !input.empty()) user += "\n";
  user += input;
  if (user.empty()) bad_row("the row has no prompt: '{}' is empty", prompt);
  sample.conversation.messages.push_back({.role = "user", .content = user});
  sample.conversation.messages.push_back({.role = "assistant", .content = text_column(row, response)});
  sample.conversation.tools_json = tools_of(row, column("tools", "tools"));
  return sample;
}

// Reads a row whose prompt is plain text: Alpaca's prompt, or the custom prompt that the entry describes (Axolotl's
// `type: alpaca` and custom prompts). Only a custom prompt uses the column of the system text.
Sample plain_prompt(const ordered_json& row, const DataSource& source) {
  const std::string instruction = source.column("prompt", "instruction"),
                    response = source.column("response", "output");
  const std::string system = source.column("system", "system");
  if (!row.contains(instruction)) bad_column(row, instruction);
  if (!row.contains(response)) bad_column(row, response);
  const std::string user = text_column(row, instruction), input = text_column(row, source.column("query", "input"));
  if (user.empty() && input.empty()) bad_row("the row has no prompt: '{}' is empty", instruction);
  Sample sample{.kind = Sample::Kind::kPrompted, .format = source.prompt ? "custom prompt" : "alpaca"};
  const PromptFormat& format = source.prompt ? *source.prompt : alpaca_format();
  sample.text = source.prompt && row.contains(system) ? format.prompt(user, input, text_column(row, system))
                                                      : format.prompt(user, input);
  sample.reply = text_column(row, response);
  return sample;
}

// Reads a conversation that is a list of pairs, such as ms-swift's {human, assistant}. `human` and `assistant` are the
// names of a pair's fields.
Sample pairs(const ordered_json& row, const ordered_json& list, const DataSource& source, const char* human,
             const char* assistant) {
  Sample sample{.format = "pairs"};
  if (const std::string system = text_column(row, source.column("system", "system")); !system.empty())
    sample.conversation.messages.push_back({.role = "system", .content = system});
  for (const auto& pair : list)
    for (const auto& [column, role] : {std::pair{human, "user"}, {assistant, "assistant"}}) {
      if (!pair.is_object() || !pair.contains(column))
        bad_row("a turn has no '{}': {}", column, pair.dump().substr(0, 120));
      sample.conversation.messages.push_back(
          {.role = role, .content = text_of(pair[column], fmt::format("'{}'", column))});
    }
  sample.conversation.tools_json = tools_beside(row, source);
  return sample;
}

Sample prompt_completion(const ordered_json& row, const DataSource& source) {
  // As in argilla/kto-mix-15k, the text is then a copy of a turn.
  if (row["prompt"].is_string() && opens_conversation(row["completion"], source)) {
    Sample sample = conversation(row, source, "completion", !has_openai_names(row["completion"], "completion", source));
    want_order(sample.conversation.messages);
    return sample;
  }
  Sample sample{.format = "prompt and completion"};
  std::vector<Message>& messages = sample.conversation.messages;
  auto add = [&](const char* column, const char* role, bool train) {
    const ordered_json* value = find_column(row, column);
    if (!value && !train) bad_row("'{}' is null", column);
    if (value && value->is_array()) {
      for (Message& message : read_messages(*value, column, message_names(source, false))) {
        message.of_prompt = message.train && !train;
        message.train = message.train && train;
        message.marked = message.marked && train;
        messages.push_back(std::move(message));
      }
    } else {
      messages.push_back({.role = role, .content = text_column(row, column), .train = train, .of_prompt = !train});
    }
  };
  if (!row["prompt"].is_array()) add_history(messages, row, source.column("history", "history"), source);
  sample.plain = messages.empty() && row["prompt"].is_string() && row["completion"].is_string();
  for (Message& message : messages) {
    message.train = false;
    message.of_prompt = true;
  }
  add("prompt", "user", false);
  add("completion", "assistant", true);
  add_system(messages, text_column(row, source.column("system", "system")));
  sample.conversation.tools_json = tools_beside(row, source);
  want_order(messages);
  return sample;
}

// Returns whether the column says whether the reply is good or bad. A label that is not true or false may be a class.
bool is_rating(const std::string& column, const ordered_json& value) {
  return column == "kto_tag" || (column == "label" && truth_of(value));
}

// Returns whether the entry names the column as one that is beside a prompt and a reply.
bool is_named_beside(const std::string& column, const DataSource& source) {
  return std::ranges::any_of(std::array{"system", "tools", "kto_tag", "label"},
                             [&](const char* what) { return source.column(what) == column; });
}

// Returns whether each column of the row is one of `read`, is about the row, rates the reply, or has no media.
template <size_t N>
bool has_only(const ordered_json& row, const DataSource& source, const std::string_view (&read)[N]) {
  return std::ranges::all_of(row.items(), [&](const auto& item) {
    return std::ranges::find(read, item.key()) != std::end(read) || is_about_the_row(item.key()) ||
           is_rating(item.key(), item.value()) || is_named_beside(item.key(), source) ||
           is_empty_media(item.key(), item.value());
  });
}

// Returns whether the row is a question with an answer. Any other column may have what the question needs: choices, an
// image, or a text that the question is about. A column such as `solution` may have the text to learn, and the answer
// only its result, unless the answer is empty, as for read_prompt. So the row may only have columns that are read,
// columns that explain or rate the answer, and columns about the row.
bool is_answered_question(const ordered_json& row, const DataSource& source) {
  static constexpr std::string_view kRead[] = {
      "question",    "answer",   "system",    "history",   "tools",
      "explanation", "solution", "rationale", "reasoning", "chat_template_kwargs"};
  return has_column(row, "question") && row.contains("answer") && has_only(row, source, kRead) &&
         (!has_content(row, "answer") ||
          std::ranges::none_of(std::array{"solution", "rationale", "reasoning"},
                               [&](const char* column) { return has_content(row, column); }));
}

// Returns whether the row has the columns of databricks-dolly-15k, which are Alpaca's with other names. Without any
// other column, the context is a part of the prompt.
bool is_dolly(const ordered_json& row, const DataSource& source) {
  static constexpr std::string_view kRead[] = {
      "instruction", "context", "response", "system", "history", "tools", "chat_template_kwargs"};
  return has_column(row, "instruction") && (row.contains("context") || row.contains("response")) &&
         has_only(row, source, kRead);
}

Sample turns_of(const ordered_json& row, const DataSource& source) {
  const std::string column = turns_column(row, source);
  if (!source.formatting.empty()) return conversation(row, source, column, source.formatting == "sharegpt");
  const ordered_json* list = find_column(row, column);
  if (!list) bad_column(row, column);
  const bool has_roles = first_has(*list, "role") || first_has(*list, "from");
  for (const auto& [human, assistant] : {std::pair{"human", "assistant"}, {"input", "output"}})  // ms-swift, Capybara
    if (!has_roles && first_has(*list, human) && first_has(*list, assistant))
      return pairs(row, *list, source, human, assistant);
  return conversation(row, source, column, !has_openai_names(*list, column, source));
}

// Reads a row with a prompt and a reply in columns that no `columns` of an entry names. The text in the column `query`
// follows the prompt. The system text, history and tools have the columns that the entry names, or else their usual
// ones.
Sample prompt_and_reply(const ordered_json& row, DataSource source, const char* prompt, const char* reply,
                        const char* query = "") {
  source.formatting = "alpaca";
  for (const char* beside : {"system", "history", "tools"}) source.columns.emplace(beside, beside);
  source.columns["prompt"] = prompt;
  source.columns["query"] = query;
  source.columns["response"] = reply;
  return alpaca(row, source);
}

Sample read_any(const ordered_json& value, const DataSource& source) {
  auto has = [&](const char* column) { return find_column(value, column) != nullptr; };
  if (has("input_ids")) return read_tokens(value);
  if (is_conversation(value, source)) {
    Sample sample = read_turns(value, source);
    want_order(sample.conversation.messages);
    return sample;
  }
  if (source.formatting == "alpaca") return alpaca(value, source);
  if (source.formatting == "alpaca_prompt") return plain_prompt(value, source);
  if (source.formatting == "text") {
    const std::string column = source.column("text", "text");
    if (!value.contains(column)) bad_column(value, column);
    return {.kind = Sample::Kind::kText, .text = text_column(value, column), .continues = true, .format = "text"};
  }
  if (value.contains("prompt") && value.contains("completion")) return prompt_completion(value, source);
  if (has("instruction")) {
    if (value.contains("output") || is_pair(value, source)) return alpaca(value, source);
    if (is_dolly(value, source)) return prompt_and_reply(value, source, "instruction", "response", "context");
    refuse_columns(value);
  }
  if (has("query") && value.contains("response")) return prompt_and_reply(value, source, "query", "response");
  for (const char* column : {"text", "content"}) {
    if (has(column)) return {.kind = Sample::Kind::kText, .text = text_column(value, column), .format = "text"};
  }
  if (is_answered_question(value, source)) return prompt_and_reply(value, source, "question", "answer");
  if (is_pair(value, source)) bad_row("{}", kPairRow);
  for (const char* column : {"messages", "conversations", "instruction", "text", "content", "input_ids"})
    if (value.contains(column)) bad_row("the column '{}' is null", column);
  refuse_columns(value);
}

// Leaves out the system messages with which a conversation begins if the entry says so.
void drop_system(Sample& sample, const DataSource& source) {
  std::vector<Message>& messages = sample.conversation.messages;
  if (source.drop_system)
    messages.erase(messages.begin(),
                   std::ranges::find_if_not(messages, [](const Message& one) { return is_system(one.role); }));
}

// Returns the column in which read_any looks for the reply of a row that is not a conversation; "" when the row is a
// text or token ids.
std::string answer_column(const ordered_json& row, const DataSource& source) {
  if (source.formatting == "alpaca") return source.column("response", source.columns.empty() ? "output" : "");
  if (source.formatting == "alpaca_prompt") return source.column("response", "output");
  if (!source.formatting.empty() || has_column(row, "input_ids")) return "";
  if (row.contains("prompt") && row.contains("completion")) return "completion";
  if (has_column(row, "instruction")) return is_dolly(row, source) ? "response" : "output";
  if (has_column(row, "text") || has_column(row, "content")) return "";
  if (has_column(row, "query")) return "response";
  if (has_column(row, "question")) return "answer";
  return has_column(row, "prompt") ? "completion" : "";
}

}  // namespace

std::string turns_column(const ordered_json& row, const DataSource& source) {
  if (source.formatting == "sharegpt") return source.column("messages", "conversations");
  if (source.formatting == "openai") return source.column("messages", "messages");
  if (!source.formatting.empty()) return "";
  if (const std::string named = source.column("messages"); !named.empty()) return named;
  for (const char* column : {"messages", "conversations", "conversation"})
    if (has_column(row, column)) return column;
  return "";
}

bool has_openai_names(const ordered_json& list, const std::string& column, const DataSource& source) {
  if (!source.formatting.empty()) return source.formatting == "openai";
  const std::string role = source.tag("role_tag", "role");
  return (role != "from" && first_has(list, role)) || (column == "messages" && !first_has(list, "from"));
}

bool opens_conversation(const ordered_json& list, const DataSource& source) {
  if (!list.is_array() || list.empty()) return false;
  const std::string first = role_of(list[0], message_names(source, !has_openai_names(list, "chosen", source)));
  return first == "user" || is_system(first);
}

bool is_conversation(const ordered_json& row, const DataSource& source) {
  return !turns_column(row, source).empty();
}

Sample read_turns(const ordered_json& row, const DataSource& source) {
  Sample sample = turns_of(row, source);
  drop_system(sample, source);
  return sample;
}

Sample read_sample(const ordered_json& value, const DataSource& source) {
  Sample sample = read_any(value, source);
  drop_system(sample, source);
  sample.conversation.variables_json = read_variables(value);
  return sample;
}

Sample read_prompt(const ordered_json& row, const DataSource& source) {
  if (!has_column(row, "input_ids") && is_conversation(row, source)) {
    Sample sample = read_turns(row, source);
    want_order_of_turns(sample.conversation.messages);
    sample.conversation.variables_json = read_variables(row);
    return sample;
  }
  if (source.formatting == "alpaca" && source.columns.contains("chosen") && !source.columns.contains("response")) {
    DataSource answered = source;
    answered.columns["response"] = source.column("chosen");
    return read_prompt(row, answered);
  }
  const std::string reply = answer_column(row, source);
  const bool may_have_a_solution = reply == "answer";  // a prompt needs no choice between the two
  if (reply.empty() || (has_column(row, reply) && !may_have_a_solution)) return read_sample(row, source);
  ordered_json one = row;
  one[reply] = "";
  if (reply == "completion" && row["prompt"].is_array()) {
    one["messages"] = row["prompt"];
    for (const char* column : {"prompt", "completion"}) one.erase(column);
    return read_prompt(one, source);
  }
  return read_sample(one, source);
}

std::string read_variables(const ordered_json& row) {
  const ordered_json* variables = find_column(row, "chat_template_kwargs");
  if (!variables) return "";
  ordered_json object = *variables;
  if (object.is_string()) object = json_of_text(object.get<std::string>(), "'chat_template_kwargs'");
  if (!object.is_object()) bad_row("'chat_template_kwargs' must be an object, but it is {}", variables->dump());
  return object.dump();
}

Sample without_template(Sample plain) {
  Sample out{.kind = Sample::Kind::kPrompted, .format = plain.format};
  for (const Message& message : plain.conversation.messages)
    (message.role == "assistant" ? out.reply : out.text) += message.content;
  return out;
}

}  // namespace fettle
