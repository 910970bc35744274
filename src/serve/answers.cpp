#include "serve/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/process_name.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Returns the value for JSON, which has no infinity. Like OpenAI, writes -9999 for a token that cannot be drawn.
double finite(double logprob) {
  return std::max(logprob, -9999.0);
}

int64_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

ordered_json token_json(const std::string& text, double logprob) {
  return {{"token", text}, {"logprob", finite(logprob)}, {"bytes", std::vector<uint8_t>(text.begin(), text.end())}};
}

ordered_json chat_chances(const std::vector<TokenChance>& chances) {
  ordered_json content = ordered_json::array();
  for (const TokenChance& chance : chances) {
    ordered_json token = token_json(chance.text, chance.logprob);
    token["top_logprobs"] = ordered_json::array();
    for (const auto& [text, logprob] : chance.top) token["top_logprobs"].push_back(token_json(text, logprob));
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
    out["tokens"].push_back(chance.text);
    out["token_logprobs"].push_back(finite(chance.logprob));
    ordered_json top = ordered_json::object();
    for (const auto& [text, logprob] : chance.top)
      if (!top.contains(text)) top[text] = finite(logprob);
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += characters(chance.text);
  }
  return out;
}

ordered_json usage_json(const AnswerUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.reply_tokens},
          {"total_tokens", usage.prompt_tokens + usage.reply_tokens}};
}

}  // namespace

AnswerWriter::AnswerWriter(bool chat, std::string model, bool chances, bool usage)
    : chat_(chat),
      model_(std::move(model)),
      id_((chat ? "chatcmpl-" : "cmpl-") + random_hex(3)),
      chances_(chances),
      usage_(usage),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::string AnswerWriter::whole(const std::string& text, const std::vector<TokenChance>& chances,
                                const std::string& finish_reason, const AnswerUsage& usage) const {
  ordered_json choice{{"index", 0}};
  if (chat_)
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  else
    choice["text"] = text;
  choice["logprobs"] = nullptr;
  if (chances_) choice["logprobs"] = chat_ ? chat_chances(chances) : text_chances(chances, 0);
  choice["finish_reason"] = finish_reason;
  return dumped({{"id", id_},
                 {"object", chat_ ? "chat.completion" : "text_completion"},
                 {"created", created_},
                 {"model", model_},
                 {"choices", ordered_json::array({choice})},
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

std::string AnswerWriter::begin() const {
  if (!chat_) return "";
  return event(dumped({{"index", 0},
                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}}));
}

std::string AnswerWriter::piece(const std::string& text, const std::vector<TokenChance>& chances) {
  ordered_json choice{{"index", 0}};
  if (chat_)
    choice["delta"] = {{"content", text}};
  else
    choice["text"] = text;
  choice["logprobs"] = nullptr;
  if (chances_) choice["logprobs"] = chat_ ? chat_chances(chances) : text_chances(chances, offset_);
  for (const TokenChance& chance : chances) offset_ += characters(chance.text);
  choice["finish_reason"] = nullptr;
  return event(dumped(choice));
}

std::string AnswerWriter::end(const std::string& finish_reason, const AnswerUsage& usage) const {
  ordered_json choice{{"index", 0}};
  if (chat_)
    choice["delta"] = ordered_json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_reason;
  std::string out = event(dumped(choice));
  if (usage_) {
    std::string last = event("");
    last.replace(last.rfind("null"), 4, dumped(usage_json(usage)));
    out += last;
  }
  return out + "data: [DONE]\n\n";
}

}  // namespace fettle
