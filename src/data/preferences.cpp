#include "data/preferences.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json_text.h"
#include "base/text.h"
#include "data/chat/system_message.h"
#include "data/messages.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns the column that has the prompt as a list of turns; "" when there is none. A conversation of other things than
// turns, such as Capybara's pairs of input and output, does not count if the replies are whole conversations.
std::string prompt_column(const ordered_json& row, const DataSource& source, const ordered_json& reply) {
  if (!source.formatting.empty() || source.columns.contains("messages")) return turns_column(row, source);
  for (const char* column : {"messages", "conversations", "conversation"}) {
    if (!has_column(row, column)) continue;
    const ordered_json& turns = row[column];
    const bool has_turns = !turns.is_array() || turns.empty() || turns[0].contains("role") || turns[0].contains("from");
    if (has_turns || !opens_conversation(reply, source)) return column;
  }
  return "";
}

// Returns whether the two messages have the same values of the fields that templates use. Other fields, such as an id,
// may differ.
bool same_fields(const std::string& a_json, const std::string& b_json) {
  if (a_json == b_json) return true;
  using nlohmann::json;  // the order of the fields does not count
  const json a = parse_json_or_discard<json>(a_json.empty() ? "{}" : a_json),
             b = parse_json_or_discard<json>(b_json.empty() ? "{}" : b_json);
  return std::ranges::all_of(
      std::array{"tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning", "thinking"},
      [&](const char* field) { return a.value(field, json()) == b.value(field, json()); });
}

bool same(const Message& a, const Message& b) {
  return a.role == b.role && a.content == b.content && same_fields(a.extra_json, b.extra_json);
}

bool same_turn(const ordered_json& a, const ordered_json& b, const MessageNames& names) {
  const auto read = [&](const ordered_json& turn) {
    return read_messages(ordered_json::array({turn}), "prompt", names).at(0);
  };
  return same(read(a), read(b));
}

// Requires that the reply, a list of turns, may follow the turns of the prompt.
void want_continuation(const ordered_json& turns, const ordered_json& reply, const MessageNames& names) {
  const std::string last = turns.empty() ? "" : role_of(turns.back(), names),
                    first = reply.empty() ? "" : role_of(reply[0], names);
  if ((is_system(first) && !turns.empty()) || (first == "user" && last == "user"))
    throw BadRow(
        "a reply begins with a turn of the user or the system, but not with the turns of the prompt; leave out one of "
        "the two");
}

// Returns the turns followed by `reply`, which is a turn, a list of turns, or the text of an assistant's turn.
ordered_json with_reply(ordered_json turns, const ordered_json& reply, const std::string& column,
                        const DataSource& source) {
  const ordered_json list = reply.is_array() ? reply : ordered_json::array({reply});
  const MessageNames names = message_names(source, !has_openai_names(turns.is_string() ? list : turns, column, source));
  const auto turn = [&](const std::string& role, const ordered_json& text) {
    return ordered_json{{names.role, role}, {names.content, text}};
  };
  if (turns.is_string() &&
      (!source.formatting.empty() || source.columns.contains("messages")))  // Axolotl: the text of a single user turn
    turns = ordered_json::array({turn(names.user, turns)});
  if (!turns.is_array()) throw BadRow("the prompt's turns must be an array");
  if (reply.is_array()) {
    // A reply with the same first turn is the whole conversation. `turns` may then be a copy of the other reply, as in
    // UltraFeedback.
    if (!turns.empty() && !reply.empty() && same_turn(reply[0], turns[0], names)) return reply;
    want_continuation(turns, reply, names);
    turns.insert(turns.end(), reply.begin(), reply.end());
  } else {
    turns.push_back(reply.is_string() ? turn(names.assistant, reply) : reply);
  }
  return turns;
}

// Returns whether `reply` is the whole conversation, including the prompt. Throws BadRow if the reply has another
// prompt.
bool is_whole(const ordered_json& reply, const ordered_json& row, const DataSource& source) {
  const ordered_json* prompt = find_column(row, "prompt");
  if (!reply.is_array() || !prompt || !prompt->is_array()) return opens_conversation(reply, source);
  const MessageNames names = message_names(source, !has_openai_names(*prompt, "prompt", source));
  const auto same = [&](const ordered_json& a, const ordered_json& b) { return same_turn(a, b, names); };
  if (reply.size() > prompt->size() && std::equal(prompt->begin(), prompt->end(), reply.begin(), same)) return true;
  want_continuation(*prompt, reply, names);
  return false;
}

// Splits a text of the form "\n\nHuman: ...\n\nAssistant: ..." into turns, as Anthropic's data sets have them. Returns
// null for other texts.
ordered_json turns_of_text(const std::string& text) {
  constexpr std::pair<std::string_view, const char*> kMarks[] = {{"\n\nHuman:", "user"},
                                                                 {"\n\nAssistant:", "assistant"}};
  ordered_json turns = ordered_json::array();
  size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos || begin < 2) return nullptr;
  begin -= 2;
  while (begin < text.size()) {
    const auto* mark = std::ranges::find_if(
        kMarks, [&](const auto& one) { return std::string_view(text).substr(begin).starts_with(one.first); });
    if (mark == std::end(kMarks)) return nullptr;
    begin += mark->first.size();
    const size_t end = std::min({text.size(), text.find(kMarks[0].first, begin), text.find(kMarks[1].first, begin)});
    turns.push_back({{"role", mark->second}, {"content", trimmed(std::string_view(text).substr(begin, end - begin))}});
    begin = end;
  }
  return turns.size() > 1 && turns[0]["role"] == "user" ? turns : nullptr;
}

// Returns the column of the question that the replies answer: Orca's pairs have `question` or `input`, ms-swift's have
// `query`. Returns "" when there is none.
std::string question_column(const ordered_json& row) {
  for (const char* column : {"question", "input", "query"})
    if (has_content(row, column)) return column;
  return "";
}

// Returns the column of the reply `which` (chosen or rejected). LLaMA-Factory v1 calls these columns chosen_messages
// and rejected_messages. Rows without these may have both chosen_response and rejected_response.
std::string reply_column(const ordered_json& row, const DataSource& source, const std::string& which) {
  const bool responses = has_column(row, "chosen_response") && has_column(row, "rejected_response");
  const std::string whole = which + "_messages",
                    other = responses && !has_column(row, whole) ? which + "_response" : whole;
  return source.column(which, !has_column(row, which) && has_column(row, other) ? other : which);
}

// Returns whether the name of the column says that it has a prompt or a part of it.
bool is_called_prompt(const std::string& column) {
  static constexpr std::string_view kNames[] = {"prompt",      "user_prompt", "problem", "question", "query",
                                                "instruction", "input",       "context", "passage",  "document",
                                                "article",     "choice",      "option"};
  const std::string name = lower_case(column);
  return std::ranges::any_of(kNames,
                             [&](std::string_view one) { return name == one || name == std::string(one) + "s"; });
}

// Returns a column that may have a part of the prompt, but is neither in `read` nor named by an entry. Returns "" when
// there is none. If an entry names both replies, other columns do not count.
std::string unread_prompt_column(const ordered_json& row, const DataSource& source,
                                 const std::vector<std::string>& read) {
  if (source.columns.contains("chosen") && source.columns.contains("rejected")) return "";
  for (const auto& item : row.items()) {
    const std::string& column = item.key();
    const bool is_read = std::ranges::find(read, column) != read.end() ||
                         std::ranges::any_of(source.columns, [&](const auto& one) { return one.second == column; });
    if (!is_read && is_called_prompt(column) && has_content(row, column)) return column;
  }
  return "";
}

// Requires that the columns in `read` have the whole prompt.
void want_whole_prompt(const ordered_json& row, const DataSource& source, const std::vector<std::string>& read) {
  if (const std::string other = unread_prompt_column(row, source, read); !other.empty())
    bad_row(
        "the column '{}' may be a part of the prompt; join it with '{}', or name both replies in an entry of "
        "dataset_info.json or of `dataset` to leave it out: \"columns\": {{\"chosen\": \"{}\", \"rejected\": \"{}\"}}",
        other, read[0], reply_column(row, source, "chosen"), reply_column(row, source, "rejected"));
}

// Reads the row as if the reply in `column` were its only reply.
Sample with_one_reply(const ordered_json& row, const DataSource& source, const std::string& column) {
  if (!has_column(row, column)) throw BadRow(missing_column(row, column));
  const ordered_json& reply = row[column];
  if (const std::string turns = prompt_column(row, source, reply); !turns.empty()) {
    if (!has_column(row, turns)) throw BadRow(missing_column(row, turns));
    ordered_json one = row;
    one[turns] = with_reply(row[turns], reply, turns, source);
    return read_sample(one, source);
  }
  const auto also_copied = [&](ordered_json one) {
    for (const char* also : {"system", "history", "tools", "functions", "chat_template_kwargs"})
      if (const std::string name = source.column(also, also); has_column(row, name)) one[name] = row[name];
    return one;
  };
  if (source.formatting.empty() && is_whole(reply, row, source))
    return read_sample(also_copied({{reply[0].contains("from") ? "conversations" : "messages", reply}}), source);
  // A completion is a text or a list of messages.
  const ordered_json completion = reply.is_object() ? ordered_json::array({reply}) : reply;
  if (source.formatting.empty() && has_column(row, "prompt"))
    return read_sample(also_copied({{"prompt", row["prompt"]}, {"completion", completion}}), source);
  if (source.formatting == "alpaca" || has_column(row, "instruction")) {
    if (source.formatting.empty()) want_whole_prompt(row, source, {"instruction", "input"});
    DataSource alpaca = source;
    alpaca.formatting = "alpaca";
    if (!alpaca.columns.contains("prompt"))
      alpaca.columns.merge(std::map<std::string, std::string>{{"prompt", "instruction"},
                                                              {"query", "input"},
                                                              {"system", "system"},
                                                              {"history", "history"},
                                                              {"tools", "tools"}});
    alpaca.columns["response"] = column;
    return read_sample(row, alpaca);
  }
  if (const ordered_json turns = reply.is_string() ? turns_of_text(reply.get<std::string>()) : nullptr;
      !turns.is_null())
    return read_sample(also_copied({{"messages", turns}}), source);
  if (const std::string asked = question_column(row); source.formatting.empty() && !asked.empty()) {
    want_whole_prompt(row, source, {asked});
    return read_sample(also_copied({{"prompt", row[asked]}, {"completion", completion}}), source);
  }
  if (!reply.is_array())
    throw BadRow(
        fmt::format("'{}' has no prompt; add a column prompt, instruction, messages or conversations, or make "
                    "'{}' a list of messages",
                    column, column));
  return read_sample(also_copied({{reply.empty() || !reply[0].contains("from") ? "messages" : "conversations", reply}}),
                     source);
}

void want_chat(const Sample& sample) {
  if (sample.kind != Sample::Kind::kChat)
    throw BadRow("the row is a text or token ids, but this stage needs a prompt and a reply");
}

std::string rating_column(const ordered_json& row, const DataSource& source) {
  return source.column("kto_tag", has_column(row, "kto_tag") ? "kto_tag" : source.column("label", "label"));
}

// Returns how many messages the prompt has, with which both conversations begin.
size_t shared_messages(const std::vector<Message>& chosen, const std::vector<Message>& rejected) {
  size_t prompt = 0;
  while (prompt < std::min(chosen.size(), rejected.size()) && same(chosen[prompt], rejected[prompt])) ++prompt;
  // If the shorter conversation is the beginning of the longer one, the last message of the shorter one counts as its
  // reply. Equal replies are dropped later, after they are tokenised.
  if (prompt == chosen.size() || prompt == rejected.size()) --prompt;
  while (prompt > 0 && chosen[prompt].role != "assistant" && same(chosen[prompt], rejected[prompt])) --prompt;
  return prompt;
}

// Returns the column that has the chosen reply of ms-swift's rows: at the end of `messages`, or as a text beside the
// prompt. Returns "" when there is none, or when the row has a column for the chosen reply alone.
std::string chosen_beside_prompt(const ordered_json& row) {
  for (const char* alone : {"chosen", "chosen_messages", "chosen_response"})
    if (has_column(row, alone)) return "";
  if (has_column(row, "messages")) return "messages";
  for (const auto& [prompt, reply] : {std::pair{"query", "response"}, {"instruction", "output"}})
    if (has_column(row, prompt) && has_column(row, reply)) return reply;
  return "";
}

// Returns whether the row is a pair of ms-swift, with the rejected reply in `rejected_response` or `rejected_messages`.
// If an entry names other columns for the replies, the row has the form that the entry describes.
bool is_pair_of_swift(const ordered_json& row, const DataSource& source) {
  const std::string rejected = source.column("rejected");
  if (source.columns.contains("chosen") ||
      (source.columns.contains("rejected") && rejected != "rejected_response" && rejected != "rejected_messages"))
    return false;
  const std::string chosen = chosen_beside_prompt(row);
  return !chosen.empty() &&
         (has_column(row, "rejected_response") || (chosen == "messages" && has_column(row, "rejected_messages")));
}

// Returns a pair of ms-swift with the columns `chosen` and `rejected` instead. Returns other rows without changes.
ordered_json with_both_replies(const ordered_json& row, const DataSource& source) {
  if (!is_pair_of_swift(row, source)) return row;
  ordered_json out = row;
  if (const std::string chosen = chosen_beside_prompt(row); chosen != "messages") {
    out["chosen"] = row[chosen];
    out["rejected"] = row["rejected_response"];
    return out;
  }
  if (!row["messages"].is_array() || row["messages"].empty()) return row;
  if (has_column(row, "rejected_messages")) {
    out["chosen"] = row["messages"];
    out["rejected"] = row["rejected_messages"];
    out.erase("messages");
    return out;
  }
  out["chosen"] = row["messages"].back();
  out["rejected"] = row["rejected_response"];
  out["messages"].erase(row["messages"].size() - 1);
  return out;
}

// Returns whether `messages` of a pair of ms-swift end with the prompt, so that the chosen reply is missing.
bool lacks_chosen(const ordered_json& row, const DataSource& source) {
  if (!is_pair_of_swift(row, source) || chosen_beside_prompt(row) != "messages") return false;
  const ordered_json& messages = row["messages"];
  if (!messages.is_array() || messages.empty()) return false;
  const MessageNames names = message_names(source, !has_openai_names(messages, "messages", source));
  const std::string last = role_of(messages.back(), names);
  return last != "assistant" && last != "function_call";
}

// Throws for a pair of texts whose prompt may be in `column`. The entry in the message names all columns that are read.
[[noreturn]] void refuse_prompt_column(const ordered_json& row, const DataSource& source, const std::string& column) {
  std::string beside;
  for (const char* name : {"system", "history", "tools"})
    if (has_column(row, name)) beside += fmt::format(", \"{}\": \"{}\"", name, name);
  bad_row(
      "the column '{}' may have the prompt; name it in an entry of dataset_info.json or of `dataset`: \"columns\": "
      "{{\"prompt\": \"{}\", \"chosen\": \"{}\", \"rejected\": \"{}\"{}}}; if it is not the prompt, name only the two "
      "replies",
      column, column, reply_column(row, source, "chosen"), reply_column(row, source, "rejected"), beside);
}

// Gives a pair of texts without a prompt the common beginning of the texts as its prompt, as TRL does. If the last
// character before the difference is a space, the replies begin with this space. Returns other rows without changes.
// Throws BadRow if another column may have the prompt.
ordered_json with_common_prompt(const ordered_json& row, const DataSource& source) {
  const std::string names[] = {reply_column(row, source, "chosen"), reply_column(row, source, "rejected")};
  const auto is_text = [&](const std::string& name) {
    const ordered_json* reply = find_column(row, name);
    return reply && reply->is_string() && turns_of_text(reply->get<std::string>()).is_null();
  };
  if (!source.formatting.empty() || !std::ranges::all_of(names, is_text) || has_column(row, "prompt") ||
      has_column(row, "instruction") || !question_column(row).empty() ||
      !prompt_column(row, source, row[names[0]]).empty())
    return row;
  if (const std::string column = unread_prompt_column(row, source, {}); !column.empty())
    refuse_prompt_column(row, source, column);
  const std::string chosen = row[names[0]], rejected = row[names[1]];
  auto end = static_cast<size_t>(std::ranges::mismatch(chosen, rejected).in1 - chosen.begin());
  if (end == std::min(chosen.size(), rejected.size())) return row;  // one text is the beginning of the other
  while (end > 0 && (static_cast<unsigned char>(chosen[end]) & 0xc0) == 0x80) --end;  // within a character of UTF-8
  if (end > 0 && chosen[end - 1] == ' ') --end;
  if (end == 0) return row;
  ordered_json out = row;
  out["prompt"] = chosen.substr(0, end);
  out[names[0]] = chosen.substr(end);
  out[names[1]] = rejected.substr(end);
  return out;
}

// Returns whether the rating is good; nullopt if it is not a rating.
std::optional<bool> rating_of(const ordered_json& value) {
  if (value == 1 || value == "1") return true;
  if (value == 0 || value == "0") return false;
  return truth_of(value);
}

bool is_good(const ordered_json& value, const std::string& column) {
  if (const std::optional<bool> good = rating_of(value)) return *good;
  throw BadRow(fmt::format("'{}' must be true or false, but it is {}", column, value.dump().substr(0, 40)));
}

// Returns the column that says that the reply is bad; "" when there is none. A label may also be that of a class. So a
// label counts only if its column is called `label`, no entry names this column, and the label is false. The text
// "false" counts only beside a `completion`, as in TRL's sets with ratings.
std::string bad_mark(const ordered_json& row, const DataSource& source) {
  const std::string tag = source.column("kto_tag", "kto_tag");
  if (const ordered_json* value = find_column(row, tag)) return rating_of(*value) == false ? tag : "";
  const bool named = std::ranges::any_of(source.columns, [](const auto& column) { return column.second == "label"; });
  const ordered_json* label = named ? nullptr : find_column(row, "label");
  const bool rates = label && (label->is_boolean() || has_column(row, "completion"));
  return rates && truth_of(*label) == false ? "label" : "";
}

}  // namespace

bool has_pair_columns(const ordered_json& row, const DataSource& source) {
  return (has_column(row, reply_column(row, source, "chosen")) &&
          has_column(row, reply_column(row, source, "rejected"))) ||
         is_pair_of_swift(row, source);
}

bool has_rating_columns(const ordered_json& row, const DataSource& source) {
  if (has_column(row, "choices") || has_column(row, "options")) return false;
  const std::string column = rating_column(row, source);
  const ordered_json* rating = find_column(row, column);
  if (!rating) return has_pair_columns(row, source);
  return truth_of(*rating) || column != "label" || source.columns.contains("label");
}

Sample read_pair(const ordered_json& given, const DataSource& source) {
  const ordered_json row = with_common_prompt(with_both_replies(given, source), source);
  Sample sample = with_one_reply(row, source, reply_column(row, source, "chosen"));
  Sample other = with_one_reply(row, source, reply_column(row, source, "rejected"));
  want_chat(sample);
  auto &chosen = sample.conversation.messages, &rejected = other.conversation.messages;
  const size_t prompt = shared_messages(chosen, rejected);
  for (const std::vector<Message>* side : {&chosen, &rejected})
    if ((*side)[prompt].role != "assistant")
      throw BadRow(
          fmt::format("the two conversations differ in message {}, whose role is '{}'; they must share the same prompt",
                      prompt + 1, (*side)[prompt].role));
  for (size_t i = 0; i < prompt; ++i) chosen[i].train = rejected[i].train = false;
  sample.rejected = std::move(rejected);
  return sample;
}

Sample read_pair_prompt(const ordered_json& row, const DataSource& source) {
  if (lacks_chosen(row, source)) return read_prompt(row, source);
  Sample sample = read_pair(row, source);
  std::vector<Message>& chosen = sample.conversation.messages;
  chosen.resize(shared_messages(chosen, sample.rejected));
  sample.rejected.clear();
  return sample;
}

Sample read_rated(const ordered_json& row, const DataSource& source) {
  const std::string column = rating_column(row, source);
  if (!has_column(row, column) && has_pair_columns(row, source)) return read_pair(row, source);
  if (!has_column(row, column))
    throw BadRow(missing_column(row, column) + "; the column must be true for a good reply and false for a bad one");
  ordered_json unrated = row;
  unrated.erase(column);
  Sample sample = read_sample(unrated, source);
  want_chat(sample);
  sample.preference = is_good(row[column], column) ? Preference::kChosen : Preference::kRejected;
  std::vector<Message>& messages = sample.conversation.messages;
  if (std::ranges::none_of(messages, &Message::of_prompt))
    for (size_t i = 0; i + 1 < messages.size(); ++i) messages[i].train = false;
  return sample;
}

Sample read_unrated(const ordered_json& row, const DataSource& source) {
  Sample sample = read_sample(row, source);
  const std::string column = bad_mark(row, source);
  if (sample.kind != Sample::Kind::kChat || column.empty()) return sample;
  throw BadRow(fmt::format(
      "'{}' is {}: the reply is rated as bad, so the model must not learn it; set stage: kto to learn from rated "
      "replies, or remove the row",
      column, row[column].dump()));
}

}  // namespace fettle
