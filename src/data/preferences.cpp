#include "data/preferences.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// The column that holds the prompt as a list of turns; "" when none does.
std::string turns_column(const ordered_json& row, const DataSource& source) {
  if (source.formatting == "sharegpt") return source.column("messages", "conversations");
  if (source.formatting == "openai") return source.column("messages", "messages");
  if (source.formatting == "alpaca") return "";
  for (const char* column : {"messages", "conversations", "conversation"})
    if (has_column(row, column)) return column;
  return "";
}

// The turns with `reply` behind them: a turn, a list of turns, or the text of an assistant's.
ordered_json with_reply(ordered_json turns, const ordered_json& reply, const DataSource& source) {
  if (!turns.is_array()) throw BadRow("the prompt's turns must be an array");
  if (reply.is_array()) {
    turns.insert(turns.end(), reply.begin(), reply.end());
  } else if (reply.is_string()) {
    const bool roles = source.formatting == "openai" || (!turns.empty() && turns[0].contains("role"));
    if (roles)
      turns.push_back({{"role", "assistant"}, {"content", reply}});
    else
      turns.push_back({{source.tag("role_tag", "from"), source.tag("assistant_tag", "gpt")},
                       {source.tag("content_tag", "value"), reply}});
  } else {
    turns.push_back(reply);
  }
  return turns;
}

// The row as one of a single reply, that of `column`.
Sample with_one_reply(const ordered_json& row, const DataSource& source, const std::string& column) {
  if (!has_column(row, column)) throw BadRow(fmt::format("the column '{}' is missing", column));
  const ordered_json& reply = row[column];
  if (const std::string turns = turns_column(row, source); !turns.empty()) {
    if (!has_column(row, turns)) throw BadRow(fmt::format("the column '{}' is missing", turns));
    ordered_json one = row;
    one[turns] = with_reply(row[turns], reply, source);
    return read_sample(one, source);
  }
  if (source.formatting.empty() && has_column(row, "prompt")) {
    ordered_json one = {{"prompt", row["prompt"]}, {"completion", reply}};
    for (const char* also : {"system", "tools"})
      if (has_column(row, also)) one[also] = row[also];
    return read_sample(one, source);
  }
  if (source.formatting == "alpaca" || has_column(row, "instruction")) {
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
  if (!reply.is_array())
    throw BadRow(
        fmt::format("'{}' has no prompt beside it: a column prompt, instruction, messages or conversations is wanted, "
                    "or '{}' as a list of messages",
                    column, column));
  ordered_json one = {{reply.empty() || !reply[0].contains("from") ? "messages" : "conversations", reply}};
  for (const char* also : {"system", "tools"})
    if (has_column(row, also)) one[also] = row[also];
  return read_sample(one, source);
}

bool same(const Message& a, const Message& b) {
  return a.role == b.role && a.content == b.content && a.extra_json == b.extra_json;
}

void want_chat(const Sample& sample) {
  if (sample.kind != Sample::Kind::kChat)
    throw BadRow("this is a text, or tokens; preferences want a prompt and a reply");
}

std::string judgement_column(const ordered_json& row, const DataSource& source) {
  return source.column("kto_tag", has_column(row, "kto_tag") ? "kto_tag" : "label");
}

bool judgement(const ordered_json& value, const std::string& column) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == 1 || value == "true" || value == "True" || value == "1") return true;
  if (value == 0 || value == "false" || value == "False" || value == "0") return false;
  throw BadRow(fmt::format("'{}' must be true or false, it is {}", column, value.dump().substr(0, 40)));
}

}  // namespace

RowsOf rows_of(const std::string& stage) {
  if (stage == "dpo" || stage == "rm") return RowsOf::kPairs;
  return stage == "kto" ? RowsOf::kJudged : RowsOf::kReplies;
}

int64_t examples_per_row(const std::string& stage) {
  return rows_of(stage) == RowsOf::kPairs ? 2 : 1;
}

Sample read_pair(const ordered_json& row, const DataSource& source) {
  Sample sample = with_one_reply(row, source, source.column("chosen", "chosen"));
  Sample other = with_one_reply(row, source, source.column("rejected", "rejected"));
  want_chat(sample);
  auto &chosen = sample.messages, &rejected = other.messages;
  size_t prompt = 0;
  while (prompt < std::min(chosen.size(), rejected.size()) && same(chosen[prompt], rejected[prompt])) ++prompt;
  // Replies that are the same are found when they are tokens, and dropped.
  if (prompt == chosen.size() || prompt == rejected.size()) --prompt;
  while (prompt > 0 && chosen[prompt].role != "assistant" && same(chosen[prompt], rejected[prompt])) --prompt;
  for (const std::vector<Message>* side : {&chosen, &rejected})
    if ((*side)[prompt].role != "assistant")
      throw BadRow(
          fmt::format("the two conversations differ in message {}, which is of role '{}'; the prompt must be "
                      "the same for both",
                      prompt + 1, (*side)[prompt].role));
  for (size_t i = 0; i < prompt; ++i) chosen[i].train = rejected[i].train = false;
  sample.rejected = std::move(rejected);
  return sample;
}

Sample read_judged(const ordered_json& row, const DataSource& source) {
  const std::string column = judgement_column(row, source);
  if (!has_column(row, column))
    throw BadRow(fmt::format("the column '{}' is missing: true for a good reply, false for a bad one", column));
  Sample sample = read_sample(row, source);
  want_chat(sample);
  sample.preference = judgement(row[column], column) ? Preference::kChosen : Preference::kRejected;
  for (size_t i = 0; i + 1 < sample.messages.size(); ++i) sample.messages[i].train = false;
  return sample;
}

Sample read_unjudged(const ordered_json& row, const DataSource& source) {
  Sample sample = read_sample(row, source);
  const std::string column = judgement_column(row, source);
  if (sample.kind == Sample::Kind::kChat && has_column(row, column) && row[column] == false)
    throw BadRow(fmt::format("'{}' is false: a reply judged bad is for stage kto, not for sft", column));
  return sample;
}

}  // namespace fettle
