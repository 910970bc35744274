#include "serve/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/process_name.h"
#include "base/text.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Returns the log-probability, but at least -9999, because JSON has no infinity. OpenAI also writes -9999 for a token
// that cannot be drawn.
double finite(double logprob) {
  return std::max(logprob, -9999.0);
}

ordered_json token_json(const TokenText& token, double logprob) {
  return {{"token", token.text},
          {"logprob", finite(logprob)},
          {"bytes", std::vector<uint8_t>(token.bytes.begin(), token.bytes.end())}};
}

ordered_json chat_chances(const std::vector<TokenChance>& chances) {
  ordered_json content = ordered_json::array();
  for (const TokenChance& chance : chances) {
    ordered_json token = token_json(chance.token, chance.logprob);
    token["top_logprobs"] = ordered_json::array();
    for (const auto& [other, logprob] : chance.top) token["top_logprobs"].push_back(token_json(other, logprob));
    content.push_back(std::move(token));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

ordered_json text_chances(const std::vector<TokenChance>& chances, int64_t offset) {
  ordered_json out{{"tokens", ordered_json::array()},
                   {"token_logprobs", ordered_json::array()},
                   {"top_logprobs", ordered_json::array()},
                   {"text_offset", ordered_json::array()}};
  for (const TokenChance& chance : chances) {
    out["tokens"].push_back(chance.token.text);
    out["token_logprobs"].push_back(finite(chance.logprob));
    ordered_json top = ordered_json::object();
    for (const auto& [other, logprob] : chance.top)
      if (!top.contains(other.text)) top[other.text] = finite(logprob);
    // As OpenAI's, the list has the drawn token, even if other tokens are likelier.
    if (!top.contains(chance.token.text)) top[chance.token.text] = finite(chance.logprob);
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += count_characters(chance.token.text);
  }
  return out;
}

// Returns the call as JSON. If the call has no id of its own, its id becomes `id`.
ordered_json call_json(const ToolCall& call, const std::string& id) {
  return {{"id", call.id.empty() ? id : call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

ordered_json usage_json(const AnswerUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.reply_tokens},
          {"total_tokens", usage.prompt_tokens + usage.reply_tokens}};
}

}  // namespace

AnswerWriter::AnswerWriter(bool chat, std::string model, bool chances, bool usage, bool short_ids, size_t choices)
    : chat_(chat),
      model_(std::move(model)),
      id_((chat ? "chatcmpl-" : "cmpl-") + random_hex(3)),
      chances_(chances),
      usage_(usage),
      short_ids_(short_ids),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      written_(choices) {}

std::string AnswerWriter::call_id() const {
  return short_ids_ ? random_hex(2).substr(0, 9) : "call_" + random_hex(3);
}

std::string AnswerWriter::reason(const std::string& finish_reason, size_t choice) const {
  return written_[choice].calls > 0 && finish_reason == "stop" ? "tool_calls" : finish_reason;
}

std::string AnswerWriter::whole(const std::vector<AnswerChoice>& choices, const AnswerUsage& usage) {
  ordered_json list = ordered_json::array();
  for (size_t c = 0; c < choices.size(); ++c) {
    const auto& [reply, chances, finish_reason] = choices[c];
    ordered_json choice{{"index", c}};
    if (chat_) {
      ordered_json message{{"role", "assistant"}, {"content", reply.content}, {"refusal", nullptr}};
      if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
      if (!reply.calls.empty()) {
        if (reply.content.empty()) message["content"] = nullptr;
        message["tool_calls"] = ordered_json::array();
        for (const ToolCall& call : reply.calls) message["tool_calls"].push_back(call_json(call, call_id()));
        written_[c].calls += std::ssize(reply.calls);
      }
      choice["message"] = std::move(message);
    } else {
      choice["text"] = reply.content;
    }
    choice["logprobs"] = nullptr;
    if (chances_) choice["logprobs"] = chat_ ? chat_chances(chances) : text_chances(chances, 0);
    choice["finish_reason"] = reason(finish_reason, c);
    list.push_back(std::move(choice));
  }
  return dumped({{"id", id_},
                 {"object", chat_ ? "chat.completion" : "text_completion"},
                 {"created", created_},
                 {"model", model_},
                 {"choices", std::move(list)},
                 {"usage", usage_json(usage)}});
}

// Returns one event. `choice` is the JSON of the event's choice; if it is "", the event's list of choices is empty.
std::string AnswerWriter::event(const std::string& choice) const {
  std::string head = dumped({{"id", id_},
                             {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                             {"created", created_},
                             {"model", model_}});
  head.pop_back();
  return fmt::format("data: {},\"choices\":[{}]{}}}\n\n", head, choice, usage_ ? ",\"usage\":null" : "");
}

std::string AnswerWriter::begin(size_t choice) const {
  if (!chat_) return "";
  return event(dumped({{"index", choice},
                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}}));
}

std::string AnswerWriter::piece(const ReplyPart& part, const std::vector<TokenChance>& chances, size_t number) {
  Written& written = written_[number];
  ordered_json choice{{"index", number}};
  if (chat_) {
    ordered_json delta = ordered_json::object();
    if (!part.reasoning.empty()) delta["reasoning_content"] = part.reasoning;
    if (!part.content.empty()) delta["content"] = part.content;
    for (const ToolCall& call : part.calls) {
      ordered_json one{{"index", written.calls++}};
      one.update(call_json(call, call_id()));
      delta["tool_calls"].push_back(std::move(one));
    }
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = part.content;
  }
  choice["logprobs"] = nullptr;
  if (chances_) choice["logprobs"] = chat_ ? chat_chances(chances) : text_chances(chances, written.offset);
  for (const TokenChance& chance : chances) written.offset += count_characters(chance.token.text);
  choice["finish_reason"] = nullptr;
  return event(dumped(choice));
}

std::string AnswerWriter::end(const std::string& finish_reason, size_t number) const {
  ordered_json choice{{"index", number}};
  if (chat_)
    choice["delta"] = ordered_json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = reason(finish_reason, number);
  return event(dumped(choice));
}

std::string AnswerWriter::done(const AnswerUsage& usage) const {
  std::string out;
  if (usage_) {
    std::string last = event("");
    last.replace(last.rfind("null"), 4, dumped(usage_json(usage)));
    out = last;
  }
  return out + "data: [DONE]\n\n";
}

}  // namespace fettle
