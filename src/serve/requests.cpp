#include "serve/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/random.h"
#include "config/nearest.h"
#include "data/formats.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostStops = 16, kLongestStop = 1000, kMostPrompts = 1024;
constexpr int64_t kMostReplies = 16;
constexpr size_t kMostNames = 2000;  // ordered_json looks for each name among all names of its object

// kShared has the fields that the server reads on both routes. Both routes accept the fields in kWithoutEffect and
// ignore them.
const std::vector<std::string_view> kShared = {"model",
                                               "max_tokens",
                                               "temperature",
                                               "top_p",
                                               "top_k",
                                               "min_p",
                                               "seed",
                                               "stop",
                                               "stream",
                                               "stream_options",
                                               "logprobs",
                                               "n",
                                               "logit_bias",
                                               "frequency_penalty",
                                               "presence_penalty",
                                               "repetition_penalty"};
const std::vector<std::string_view> kWithoutEffect = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"};

template <typename... Args>
[[noreturn]] void refuse(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  throw RequestError(400, fmt::format("'{}' {}", field, fmt::format(format, std::forward<Args>(args)...)),
                     std::string(field));
}

// Returns whether an object of the JSON text has more than kMostNames names. A colon outside of quotes follows each
// name. A text that nests too deeply is left to parse_json.
bool has_too_many_names(std::string_view text) {
  std::vector<size_t> names{0};  // of each object and array that is open
  bool quoted = false;
  for (size_t i = 0; i < text.size() && names.size() <= kDeepestJson + 1; ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (c == '\\') ++i;
    if (quoted) continue;
    if (c == '{' || c == '[') names.push_back(0);
    if ((c == '}' || c == ']') && names.size() > 1) names.pop_back();
    if (c == ':' && ++names.back() > kMostNames) return true;
  }
  return false;
}

// The fields of a body.
class BodyFields {
 public:
  explicit BodyFields(std::string_view body) {
    if (has_too_many_names(body))
      throw RequestError(400, fmt::format("an object of the body has more than {} names; send fewer", kMostNames));
    try {
      body_ = parse_json<ordered_json>(body);
    } catch (const UserError& error) {
      throw RequestError(400, fmt::format("the body is not valid JSON: {}", error.what()));
    }
    if (!body_.is_object()) throw RequestError(400, "the body must be a JSON object");
  }

  const ordered_json& all() const { return body_; }
  // Returns the field's value; null when the field is absent or its value is null.
  const ordered_json* find(std::string_view field) const {
    const auto at = body_.find(field);
    return at == body_.end() || at->is_null() ? nullptr : &*at;
  }
  std::optional<double> number(std::string_view field, double least, double most) const {
    const ordered_json* value = find(field);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
    if (!fits) refuse(field, "is {}; give a number from {} to {}", shown(*value), least, most);
    return value->get<double>();
  }
  std::optional<int64_t> integer(std::string_view field, int64_t least, int64_t most) const {
    const ordered_json* value = find(field);
    if (value == nullptr) return std::nullopt;
    const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!value->is_number_integer() || too_large || value->get<int64_t>() < least || value->get<int64_t>() > most)
      refuse(field, "is {}; give an integer from {} to {}", shown(*value), least, most);
    return value->get<int64_t>();
  }
  bool yes(std::string_view field) const {
    const ordered_json* value = find(field);
    if (value == nullptr) return false;
    if (!value->is_boolean()) refuse(field, "is {}; give true or false", shown(*value));
    return value->get<bool>();
  }
  std::string text(std::string_view field) const {
    const ordered_json* value = find(field);
    if (value == nullptr) return "";
    if (!value->is_string()) refuse(field, "is {}; give a text", shown(*value));
    return value->get<std::string>();
  }

  void want_known(const std::vector<std::string_view>& own) const {
    std::vector<std::string_view> known = own;
    for (const auto* list : {&kShared, &kWithoutEffect}) known.insert(known.end(), list->begin(), list->end());
    for (const auto& [field, value] : body_.items()) {
      if (value.is_null() || std::ranges::find(known, field) != known.end()) continue;
      const auto near = nearest(field, known);
      refuse(field, "is not a field of this server{}; leave it out",
             near ? fmt::format(" (did you mean '{}'?)", *near) : "");
    }
  }

 private:
  ordered_json body_;
};

std::vector<std::string> stops_of(const BodyFields& fields) {
  const ordered_json* value = fields.find("stop");
  if (value == nullptr) return {};
  const ordered_json list = value->is_array() ? *value : ordered_json::array({*value});
  std::vector<std::string> out;
  for (const ordered_json& text : list) {
    const bool fits = text.is_string() && !text.get_ref<const std::string&>().empty() &&
                      text.get_ref<const std::string&>().size() <= kLongestStop;
    if (!fits) refuse("stop", "has {}; give texts of 1 to {} bytes", shown(text), kLongestStop);
    out.push_back(text.get<std::string>());
  }
  if (out.size() > kMostStops) refuse("stop", "has {} texts; give at most {}", out.size(), kMostStops);
  return out;
}

CompletionRequest shared_fields(const BodyFields& fields) {
  CompletionRequest out;
  out.replies = fields.integer("n", 1, kMostReplies).value_or(1);
  if (const ordered_json* bias = fields.find("logit_bias"); bias != nullptr && !bias->empty())
    refuse("logit_bias", "is not supported; leave it out");
  out.model = fields.text("model");
  out.max_tokens = fields.integer("max_tokens", 1, INT32_MAX);
  out.temperature = fields.number("temperature", 0, 100);
  out.top_p = fields.number("top_p", 0, 1);
  out.top_k = fields.integer("top_k", -1, INT32_MAX);
  if (out.top_k == -1) out.top_k = 0;
  out.min_p = fields.number("min_p", 0, 1);
  out.presence_penalty = fields.number("presence_penalty", -2, 2);
  out.frequency_penalty = fields.number("frequency_penalty", -2, 2);
  out.repetition_penalty = fields.number("repetition_penalty", 0.01, 100);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) out.seed = static_cast<uint64_t>(*seed);
  out.stop = stops_of(fields);
  out.stream = fields.yes("stream");
  if (const ordered_json* options = fields.find("stream_options")) {
    if (!out.stream) refuse("stream_options", "is only for stream: true; leave it out");
    if (!options->is_object()) refuse("stream_options", "is {}; give an object", shown(*options));
    for (const auto& [name, value] : options->items()) {
      if (name == "include_obfuscation" && value == false) continue;
      if (name != "include_usage" || !value.is_boolean())
        refuse("stream_options", "has {}: {}; only include_usage: true or false is known", name, shown(value));
      out.include_usage = value.get<bool>();
    }
  }
  return out;
}

void read_tools(const BodyFields& fields, CompletionRequest& out) {
  const ordered_json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice != "none")
    refuse("tool_choice", "is {}; give \"auto\" or \"none\", because the server cannot force a call", shown(*choice));
  out.conversation.tools_json.clear();
}

// Puts the texts of a content with several parts on lines of their own, as vLLM and llama.cpp do. Other contents stay.
void join_texts(ordered_json& messages) {
  if (!messages.is_array()) return;
  for (ordered_json& message : messages) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
    std::string text;
    bool texts = true, first = true;
    for (const ordered_json& part : message["content"]) {
      const bool refusal = part.is_object() && part.value("type", ordered_json()) == "refusal";
      const auto found = part.is_object() ? part.find(refusal ? "refusal" : "text") : part.end();
      if (texts = part.is_object() && found != part.end() && found->is_string(); !texts) break;
      text += (first ? "" : "\n") + found->get<std::string>();
      first = false;
    }
    if (texts && !first) message["content"] = text;
  }
}

TextPrompt text_prompt(const ordered_json& value) {
  if (value.is_string()) return {.text = value.get<std::string>()};
  const bool ids = value.is_array() && !value.empty() && std::ranges::all_of(value, [](const ordered_json& id) {
                     return id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(INT32_MAX);
                   });
  if (!ids) refuse("prompt", "is {}; give a text, an array of token ids, or an array of several of them", shown(value));
  return {.text = "", .ids = value.get<std::vector<int32_t>>()};
}

}  // namespace

std::string RequestError::json() const {
  const char* type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
  nlohmann::ordered_json error{{"message", what()}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!field.empty()) error["param"] = field;
  if (!code.empty()) error["code"] = code;
  return nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false,
                                                       nlohmann::ordered_json::error_handler_t::replace);
}

ReplyOptions CompletionRequest::options(ReplyOptions defaults, uint64_t number) const {
  if (max_tokens) defaults.max_new_tokens = *max_tokens;
  defaults.continues_text = !chat;
  SamplingOptions& sampling = defaults.sampling;
  if (temperature) {
    sampling.temperature = *temperature;
    sampling.do_sample = *temperature > 0;
  }
  if (top_p) sampling.top_p = *top_p;
  if (top_k) sampling.top_k = *top_k;
  if (min_p) sampling.min_p = *min_p;
  if (repetition_penalty) sampling.repetition_penalty = *repetition_penalty;
  if (presence_penalty) sampling.presence_penalty = *presence_penalty;
  if (frequency_penalty) sampling.frequency_penalty = *frequency_penalty;
  if (seed) sampling.seed = mix_bits(*seed, number);  // like the replies of `fettle generate seed=...`
  return defaults;
}

CompletionRequest read_chat_request(std::string_view body) {
  const BodyFields fields(body);
  fields.want_known({"messages", "tools", "tool_choice", "chat_template_kwargs", "max_completion_tokens",
                     "top_logprobs", "response_format"});
  CompletionRequest out = shared_fields(fields);
  const auto longest = fields.integer("max_completion_tokens", 1, INT32_MAX);
  if (longest && out.max_tokens && longest != out.max_tokens)
    refuse("max_completion_tokens", "and 'max_tokens' differ; give one of them");
  if (longest) out.max_tokens = longest;
  if (const ordered_json* format = fields.find("response_format"))
    if (!format->is_object() || format->value("type", ordered_json()) != "text")
      refuse("response_format", "is {}; only {{\"type\": \"text\"}} is supported", shown(*format));
  const bool logprobs = fields.yes("logprobs");
  const auto top = fields.integer("top_logprobs", 0, 20);
  if (top.value_or(0) > 0 && !logprobs) refuse("top_logprobs", "needs logprobs: true");
  if (logprobs) out.top_logprobs = static_cast<int>(top.value_or(0));
  if (fields.find("messages") == nullptr) refuse("messages", "is missing; give an array of {{role, content}}");
  try {
    ordered_json row{{"messages", fields.all()["messages"]}};
    join_texts(row["messages"]);
    if (const ordered_json* tools = fields.find("tools")) row["tools"] = *tools;
    out.conversation = read_turns(row, DataSource{.formatting = "openai"}).conversation;
  } catch (const BadRow& error) {
    throw RequestError(400, error.what(), "messages");
  }
  try {
    out.conversation.variables_json = read_variables(fields.all());
  } catch (const BadRow& error) {
    throw RequestError(400, error.what(), "chat_template_kwargs");
  }
  if (out.conversation.messages.empty()) refuse("messages", "is empty; give at least the user's message");
  read_tools(fields, out);
  return out;
}

CompletionRequest read_text_request(std::string_view body) {
  const BodyFields fields(body);
  fields.want_known({"prompt", "echo", "best_of", "suffix"});
  CompletionRequest out = shared_fields(fields);
  out.chat = false;
  if (fields.yes("echo")) refuse("echo", "is not supported; put the prompt before the reply yourself");
  if (!fields.text("suffix").empty()) refuse("suffix", "is not supported; leave it out");
  if (fields.integer("best_of", 1, kMostReplies).value_or(out.replies) != out.replies)
    refuse("best_of", "must be equal to 'n'; leave it out");
  if (const auto top = fields.integer("logprobs", 0, 20)) out.top_logprobs = static_cast<int>(*top);
  const ordered_json* prompt = fields.find("prompt");
  if (prompt == nullptr) refuse("prompt", "is missing; give the text to continue");
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!several) {
    out.prompts.push_back(text_prompt(*prompt));
    return out;
  }
  if (prompt->size() > kMostPrompts) refuse("prompt", "has {} prompts; give at most {}", prompt->size(), kMostPrompts);
  for (const ordered_json& one : *prompt) out.prompts.push_back(text_prompt(one));
  return out;
}

}  // namespace fettle
