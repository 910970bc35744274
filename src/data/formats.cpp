#include "data/formats.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/json_text.h"
#include "data/thinking_tags.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

template <typename... Args>
[[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) {
  throw BadRow(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void bad_column(const ordered_json& row, const std::string& column) {
  throw BadRow(missing_column(row, column));
}

std::string quoted(const std::string& column) {
  return "'" + column + "'";
}

std::string text_column(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  return value ? text_of(*value, quoted(column)) : "";
}

// Returns whether a part of a content is trained: Axolotl's `train` (true or false) or `weight` (0 or 1). Returns
// nullopt if the part has neither field.
std::optional<bool> part_trained(const ordered_json& part) {
  if (const ordered_json* train = find_column(part, "train")) {
    if (!train->is_boolean()) bad("'train' of a content part must be true or false, but it is {}", train->dump());
    return train->get<bool>();
  }
  const ordered_json* weight = find_column(part, "weight");
  if (!weight) return std::nullopt;
  if (*weight != 0 && *weight != 1)
    bad("'weight' of a content part must be 0 or 1, but it is {}; only a whole message may have another weight",
        weight->dump());
  return *weight == 1;
}

// Returns the content of a message, which is a text or a list of text parts. If any part has a field that says whether
// the part is trained, sets `spans` to one span for each part that is not empty.
std::string content_of(const ordered_json& value, const std::string& what, std::vector<ContentSpan>* spans = nullptr) {
  if (!value.is_array()) return text_of(value, quoted(what));
  std::string text;
  std::vector<ContentSpan> parts;
  bool marked = false;
  const auto add = [&](const std::string& more, std::optional<bool> train) {
    marked = marked || train;
    if (!more.empty()) parts.push_back({text.size(), text.size() + more.size(), train.value_or(true)});
    text += more;
  };
  for (const auto& part : value) {
    if (part.is_string()) {
      add(part.get<std::string>(), std::nullopt);
      continue;
    }
    const ordered_json* inner = part.is_object() ? find_column(part, "text") : nullptr;
    if (!inner && part.is_object() && part.contains("type") && part["type"] == "text")
      inner = find_column(part, "value");
    if (!inner)
      bad("'{}' has a part of type {}, but only text can be trained", what,
          part.is_object() && part.contains("type") ? part["type"].dump() : part.type_name());
    add(text_of(*inner, quoted(what + ".text")), part_trained(part));
  }
  if (spans && marked) *spans = std::move(parts);
  return text;
}

// Parses JSON that a row has as text. Returns nlohmann's "discarded" value for a text that is not JSON.
ordered_json parsed_text(const std::string& text, const std::string& what) {
  ordered_json value = parse_json_or_discard<ordered_json>(text);
  if (value.is_discarded()) return value;
  if (const auto large = large_integers(text); !large.empty())
    bad("{} has the integer {}, which has more than 64 bits; write it in quotes, as a string", what, large[0]);
  return value;
}

// Returns the tools in `column` as JSON text; "" when there are none. The column has an array, or the JSON text of an
// array.
std::string tools_of(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  if (!value) return "";
  ordered_json tools = *value;
  if (tools.is_string()) {
    const auto text = tools.get<std::string>();
    if (is_blank(text)) return "";
    tools = parsed_text(text, quoted(column));
    if (tools.is_discarded()) bad("'{}' is a text, but not valid JSON", column);
  }
  if (!tools.is_array()) bad("'{}' must be an array of tools, but it is {}", column, tools.type_name());
  for (const auto& tool : tools)
    if (!tool.is_object()) bad("'{}' must hold objects, but one is {}", column, tool.type_name());
  return tools.empty() ? "" : tools.dump();
}

// Requires that arguments in the form of text are JSON, or blank.
void want_json_arguments(const ordered_json& arguments) {
  if (!arguments.is_string()) return;
  const auto& text = arguments.get_ref<const std::string&>();
  if (is_blank(text)) return;
  if (parse_json_or_discard<ordered_json>(text).is_discarded())
    bad("the arguments of a function call are not valid JSON: {}", text.substr(0, 80));
}

// Converts the text of a function_call turn, {"name", "arguments"} or an array of these, to OpenAI's tool_calls.
std::string tool_calls_json(const std::string& text) {
  ordered_json calls = parsed_text(text, "the function call");
  if (calls.is_discarded()) bad("the function call is not valid JSON: {}", text.substr(0, 80));
  if (!calls.is_array()) calls = ordered_json::array({calls});
  ordered_json out = ordered_json::array();
  for (const auto& call : calls) {
    if (!call.is_object() || !call.contains("name"))
      bad("a function call must have name and arguments: {}", call.dump());
    const ordered_json arguments = call.value("arguments", ordered_json::object());
    want_json_arguments(arguments);
    out.push_back({{"type", "function"}, {"function", {{"name", call["name"]}, {"arguments", arguments}}}});
  }
  return ordered_json{{"tool_calls", out}}.dump();
}

void check_tool_calls(const ordered_json& message) {
  if (!message.contains("tool_calls")) return;
  if (!message["tool_calls"].is_array())
    bad("'tool_calls' must be an array, but it is {}", message["tool_calls"].type_name());
  for (const auto& call : message["tool_calls"]) {
    if (!call.is_object()) bad("'tool_calls' must hold objects, but one is {}", call.type_name());
    const ordered_json& function = call.contains("function") ? call["function"] : call;
    if (function.is_object() && function.contains("arguments")) want_json_arguments(function["arguments"]);
  }
}

// Fields of a message that say whether the reply is trained, or which weight its tokens have. They come from OpenAI's
// format, Axolotl, ms-swift and LLaMA-Factory v1.
constexpr const char* kTrainedFields[] = {"train", "training", "loss", "loss_weight", "weight", "loss_scale"};

// Reads the fields kTrainedFields into out.train and out.weight. If a message has several of them (ms-swift's `loss`
// and `loss_scale`), multiplies the factors.
void read_weight(const ordered_json& message, Message& out) {
  constexpr double kLargest = 1000;
  for (const char* name : kTrainedFields) {
    const ordered_json* field = find_column(message, name);
    if (!field) continue;
    const bool flag = name == std::string_view("train") || name == std::string_view("training");
    if (!field->is_boolean() && (flag || !field->is_number()))
      bad("'{}' of a message must be {}, but it is {}", name, flag ? "true or false" : "a number, true or false",
          field->dump().substr(0, 80));
    const double factor = field->is_boolean() ? field->get<bool>() : field->get<double>();
    if (!(factor >= 0 && factor <= kLargest))
      bad("'{}' of a message must be from 0 to {}, but it is {}", name, kLargest, field->dump());
    out.weight *= factor;
  }
  out.train = out.weight > 0;
  if (!out.train) out.weight = 1;
}

// Returns the byte at which character number `at` of a UTF-8 text begins; text.size() when the text has fewer
// characters.
size_t byte_of_character(std::string_view text, int64_t at) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte)
    if ((static_cast<unsigned char>(text[byte]) & 0xc0) != 0x80 && at-- == 0) break;
  return byte;
}

// Reads Axolotl's field train_detail: a list of {begin_offset, end_offset, train}. Offsets count characters; the
// character at end_offset belongs to the span.
std::vector<ContentSpan> trained_spans(const ordered_json& message, const std::string& column,
                                       const std::string& content) {
  const ordered_json* list = find_column(message, column);
  if (!list) return {};
  if (!list->is_array()) bad("'{}' must be an array of spans, but it is {}", column, list->type_name());
  std::vector<ContentSpan> spans;
  for (const auto& span : *list) {
    auto offset = [&](const char* name) {
      const ordered_json* value = span.is_object() ? find_column(span, name) : nullptr;
      if (!value || !value->is_number_integer() || *value < 0)
        bad("a span of '{}' needs '{}', a whole number from 0 on: {}", column, name, span.dump().substr(0, 120));
      return value->get<int64_t>();
    };
    const int64_t begin = offset("begin_offset"), end = offset("end_offset");
    const ordered_json* train = find_column(span, "train");
    if (!train || !train->is_boolean()) bad("a span of '{}' needs 'train': true or false", column);
    const size_t first = byte_of_character(content, begin);
    if (end < begin || first >= content.size())
      bad("the span {} of '{}' is not within the content", span.dump().substr(0, 120), column);
    spans.push_back({first, byte_of_character(content, end + 1), train->get<bool>()});
  }
  return spans;
}

constexpr const char* kSpans = "train_detail";

// Reads the content of a message or turn, and the spans of the content that are trained. Spans in the column
// `spans_column` take precedence over spans of the content's parts.
void read_content(const ordered_json& message, const std::string& column, const std::string& spans_column,
                  Message& out) {
  if (const ordered_json* content = find_column(message, column))
    out.content = content_of(*content, column, &out.spans);
  if (auto spans = trained_spans(message, spans_column, out.content); !spans.empty()) out.spans = std::move(spans);
}

// Moves thoughts and tool calls from typed parts of the content (LLaMA-Factory v1) to fields of the message. Returns
// the new message.
ordered_json without_typed_parts(const ordered_json& value) {
  if (!value.contains("content") || !value["content"].is_array()) return value;
  ordered_json out = value, texts = ordered_json::array(), calls = ordered_json::array();
  for (const auto& part : value["content"]) {
    const std::string type =
        part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
    if (type == "reasoning" && part.contains("value")) {
      out["reasoning_content"] = part["value"];
    } else if (type == "tool_call" && part.contains("value") && part["value"].is_string()) {
      const ordered_json read = ordered_json::parse(tool_calls_json(part["value"].get<std::string>()));
      for (const auto& call : read["tool_calls"]) calls.push_back(call);
    } else {
      texts.push_back(part);
    }
  }
  if (texts.size() == value["content"].size()) return value;
  out["content"] = texts;
  if (!calls.empty()) out["tool_calls"] = calls;
  return out;
}

Message openai_message(const ordered_json& given) {
  if (!given.is_object()) bad("a message must be an object, but it is {}", given.type_name());
  const ordered_json value = without_typed_parts(given);
  const ordered_json* role = find_column(value, "role");
  if (!role || !role->is_string()) bad("a message has no 'role': {}", value.dump().substr(0, 120));
  Message message{.role = role->get<std::string>()};
  static const std::vector<std::string> kRoles = {"system", "developer", "user",   "assistant",
                                                  "tool",   "function",  "ipython"};
  if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end())
    bad("the role '{}' is not known; use one of {}", message.role, fmt::join(kRoles, " "));
  read_content(value, "content", kSpans, message);
  message.no_content = !has_column(value, "content");
  read_weight(value, message);
  ordered_json extra = ordered_json::object();
  for (const auto& [key, field] : value.items())
    if (key != "role" && key != "content" && key != kSpans && !field.is_null() &&
        std::find(std::begin(kTrainedFields), std::end(kTrainedFields), key) == std::end(kTrainedFields))
      extra[key] = field;
  check_tool_calls(extra);
  if (extra.contains("tool_calls") && extra["tool_calls"].empty()) extra.erase("tool_calls");
  if (!extra.empty()) message.extra_json = extra.dump();
  if (!value.contains("content") && !extra.contains("tool_calls"))
    bad("a message of role '{}' has no 'content'", message.role);
  return message;
}

std::vector<Message> openai_messages(const ordered_json& list, const std::string& column) {
  if (!list.is_array()) bad("'{}' must be an array of messages, but it is {}", column, list.type_name());
  std::vector<Message> out;
  for (const auto& message : list) out.push_back(openai_message(message));
  return out;
}

void want_order(const std::vector<Message>& messages) {
  if (messages.empty()) bad("the conversation has no messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const std::string before = i ? messages[i - 1].role : "";
    if (role == "assistant" && before == "assistant")
      bad("messages {} and {} are both the assistant's; join them, or put the user's turn between them", i, i + 1);
    if (role == "assistant" && (i == 0 || (i == 1 && before == "system")))
      bad("message {} is the assistant's, but no user or tool spoke before it", i + 1);
    if (role == "user" && before == "user")
      bad("messages {} and {} are both the user's; join them, or put the reply between them", i, i + 1);
    if ((role == "system" || role == "developer") && i > 0 && messages[0].role == role && i == 1)
      bad("messages 1 and 2 are both of role '{}'; join them", role);
  }
  if (messages.back().role != "assistant")
    bad("the conversation ends with a turn of role '{}'; the last turn must be the assistant's", messages.back().role);
}

Sample sharegpt(const ordered_json& row, const DataSource& source, const std::string& column) {
  const ordered_json* list = find_column(row, column);
  if (!list || !list->is_array()) bad("'{}' must be an array of turns", column);
  const std::string role_tag = source.tag("role_tag", "from"), content_tag = source.tag("content_tag", "value");
  std::map<std::string, std::string> roles = {{source.tag("user_tag", "human"), "user"},
                                              {source.tag("assistant_tag", "gpt"), "assistant"},
                                              {source.tag("observation_tag", "observation"), "tool"},
                                              {source.tag("function_tag", "function_call"), "function_call"},
                                              {source.tag("system_tag", "system"), "system"}};
  for (const auto& [tag, role] :
       {std::pair{"user_tag", "user"}, {"assistant_tag", "assistant"}, {"observation_tag", "tool"}})
    if (!source.tags.contains(tag)) roles.insert({role, role});
  Sample sample{.format = "sharegpt"};
  if (const std::string system = text_column(row, source.column("system", "system")); !system.empty())
    sample.messages.push_back({.role = "system", .content = system});
  for (const auto& turn : *list) {
    if (!turn.is_object()) bad("a turn must be an object, but it is {}", turn.type_name());
    const ordered_json* from = find_column(turn, role_tag);
    if (!from || !from->is_string()) bad("a turn has no '{}': {}", role_tag, turn.dump().substr(0, 120));
    const auto role = roles.find(from->get<std::string>());
    if (role == roles.end()) {
      std::string known;
      for (const auto& item : roles) known += " " + item.first;
      bad("the turn's '{}' is '{}'; use one of{}", role_tag, from->get<std::string>(), known);
    }
    if (!turn.contains(content_tag)) bad("a turn of '{}' has no '{}'", role->first, content_tag);
    Message message{.role = role->second};
    read_weight(turn, message);
    read_content(turn, content_tag, source.tag("spans_tag", kSpans), message);
    if (message.role == "function_call") {
      message.role = "assistant";
      message.extra_json = tool_calls_json(message.content);
      message.content.clear();
    }
    if (message.role == "system" && !sample.messages.empty() && sample.messages[0].role == "system" &&
        sample.messages.size() == 1)
      sample.messages.clear();  // a system turn takes precedence over the system column
    sample.messages.push_back(std::move(message));
  }
  sample.tools_json = tools_of(row, source.column("tools", "tools"));
  return sample;
}

Sample openai(const ordered_json& row, const DataSource& source, const std::string& column) {
  Sample sample{.format = "openai"};
  const ordered_json* list = find_column(row, column);
  if (!list) bad_column(row, column);
  sample.messages = openai_messages(*list, column);
  const std::string system = text_column(row, source.column("system", "system"));
  const bool has_own = !sample.messages.empty() &&  // a system turn takes precedence over the system column
                       (sample.messages[0].role == "system" || sample.messages[0].role == "developer");
  if (!system.empty() && !has_own)
    sample.messages.insert(sample.messages.begin(), {.role = "system", .content = system});
  sample.tools_json = tools_of(row, source.column("tools", "tools"));
  return sample;
}

Sample alpaca(const ordered_json& row, const DataSource& source) {
  const bool mapped = !source.columns.empty();
  auto column = [&](const char* what, const char* usual) { return source.column(what, mapped ? "" : usual); };
  const std::string prompt = column("prompt", "instruction"), response = column("response", "output");
  if (!prompt.empty() && !row.contains(prompt)) bad_column(row, prompt);
  if (response.empty() && !prompt.empty())  // the entry names only the column `prompt`, so the rows are texts
    return {.kind = Sample::Kind::kText, .text = text_column(row, prompt), .format = "text"};
  Sample sample{.format = "alpaca"};
  if (!row.contains(response)) bad_column(row, response);
  if (const std::string system = text_column(row, column("system", "system")); !system.empty())
    sample.messages.push_back({.role = "system", .content = system});
  const std::string history = column("history", "history");
  if (const ordered_json* turns = find_column(row, history)) {
    if (!turns->is_array()) bad("'{}' must be an array of [prompt, reply], but it is {}", history, turns->type_name());
    for (const auto& turn : *turns) {
      if (!turn.is_array() || turn.size() != 2)
        bad("'{}' must hold lists of two texts, [prompt, reply]; one is {}", history, turn.dump().substr(0, 120));
      sample.messages.push_back({.role = "user", .content = text_of(turn[0], quoted(history))});
      sample.messages.push_back({.role = "assistant", .content = text_of(turn[1], quoted(history))});
    }
  }
  std::string user = text_column(row, prompt);
  const std::string input = text_column(row, column("query", "input"));
  if (!user.empty() && !input.empty()) user += "\n";
  user += input;
  if (user.empty()) bad("the row has no prompt: '{}' is empty", prompt);
  sample.messages.push_back({.role = "user", .content = user});
  sample.messages.push_back({.role = "assistant", .content = text_column(row, response)});
  sample.tools_json = tools_of(row, column("tools", "tools"));
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
  if (user.empty() && input.empty()) bad("the row has no prompt: '{}' is empty", instruction);
  Sample sample{.kind = Sample::Kind::kPrompted, .format = source.prompt ? "custom prompt" : "alpaca"};
  const PromptFormat& format = source.prompt ? *source.prompt : alpaca_format();
  sample.text = source.prompt && row.contains(system) ? format.prompt(user, input, text_column(row, system))
                                                      : format.prompt(user, input);
  sample.reply = text_column(row, response);
  return sample;
}

// Reads ms-swift's conversations, which are lists of {human, assistant} pairs.
Sample pairs(const ordered_json& row, const ordered_json& list) {
  Sample sample{.format = "pairs"};
  if (const std::string system = text_column(row, "system"); !system.empty())
    sample.messages.push_back({.role = "system", .content = system});
  for (const auto& pair : list)
    for (const auto& [column, role] : {std::pair{"human", "user"}, {"assistant", "assistant"}}) {
      if (!pair.is_object() || !pair.contains(column))
        bad("a turn has no '{}': {}", column, pair.dump().substr(0, 120));
      sample.messages.push_back({.role = role, .content = text_of(pair[column], quoted(column))});
    }
  sample.tools_json = tools_of(row, "tools");
  return sample;
}

Sample prompt_completion(const ordered_json& row, const DataSource& source) {
  Sample sample{.format = "prompt and completion"};
  auto add = [&](const char* column, const char* role, bool train) {
    const ordered_json* value = find_column(row, column);
    if (!value && !train) bad("'{}' is null", column);
    if (value && value->is_array()) {
      for (Message& message : openai_messages(*value, column)) {
        message.of_prompt = message.train && !train;
        message.train = message.train && train;
        sample.messages.push_back(std::move(message));
      }
    } else {
      sample.messages.push_back({.role = role, .content = text_column(row, column), .train = train});
    }
  };
  if (const std::string system = text_column(row, "system"); !system.empty())
    sample.messages.push_back({.role = "system", .content = system});
  add("prompt", "user", false);
  add("completion", "assistant", true);
  sample.plain = row["prompt"].is_string() && row["completion"].is_string();
  sample.tools_json = tools_of(row, source.column("tools", "tools"));
  want_order(sample.messages);
  return sample;
}

std::vector<int32_t> integers(const ordered_json& row, const char* column) {
  const ordered_json* list = find_column(row, column);
  if (!list || !list->is_array()) bad("'{}' must be an array of integers", column);
  std::vector<int32_t> out;
  for (const auto& value : *list) {
    if (!value.is_number_integer() || value.get<int64_t>() > INT32_MAX || value.get<int64_t>() < INT32_MIN)
      bad("'{}' must hold 32-bit integers, but one is {}", column, value.dump().substr(0, 40));
    out.push_back(value.get<int32_t>());
  }
  return out;
}

Sample tokens(const ordered_json& row) {
  Sample sample{.kind = Sample::Kind::kTokens, .format = "tokens"};
  sample.input_ids = integers(row, "input_ids");
  if (sample.input_ids.empty()) bad("'input_ids' is empty");
  for (int32_t id : sample.input_ids)
    if (id < 0 || id >= 1 << 30) bad("'input_ids' holds {}, which is not a token id", id);
  sample.labels = row.contains("labels") ? integers(row, "labels") : sample.input_ids;
  if (sample.labels.size() != sample.input_ids.size())
    bad("found {} input_ids but {} labels; wanted one label for each id", sample.input_ids.size(),
        sample.labels.size());
  for (size_t i = 0; i < sample.labels.size(); ++i)
    if (sample.labels[i] != kIgnore && sample.labels[i] != sample.input_ids[i])
      bad("label {} is {}, but its token is {}; a label must be its token or {}", i + 1, sample.labels[i],
          sample.input_ids[i], kIgnore);
  if (row.contains("attention_mask")) {
    const std::vector<int32_t> mask = integers(row, "attention_mask");
    if (mask.size() != sample.input_ids.size())
      bad("found {} input_ids but {} numbers in attention_mask; wanted one number for each id", sample.input_ids.size(),
          mask.size());
    // Padding at either end is not part of the row.
    size_t first = 0, last = mask.size();
    while (first < last && mask[first] == 0) ++first;
    while (last > first && mask[last - 1] == 0) --last;
    if (first == last || std::find(mask.begin() + first, mask.begin() + last, 0) != mask.begin() + last)
      bad("attention_mask may have zeros only at its ends");
    for (auto* list : {&sample.input_ids, &sample.labels})
      *list = {list->begin() + static_cast<std::ptrdiff_t>(first), list->begin() + static_cast<std::ptrdiff_t>(last)};
  }
  return sample;
}

}  // namespace

bool is_conversation(const ordered_json& row, const DataSource& source) {
  if (source.formatting == "sharegpt" || source.formatting == "openai") return true;
  return source.formatting.empty() &&
         (has_column(row, "messages") || has_column(row, "conversations") || has_column(row, "conversation"));
}

namespace {

Sample turns_of(const ordered_json& row, const DataSource& source) {
  if (source.formatting == "sharegpt") return sharegpt(row, source, source.column("messages", "conversations"));
  if (source.formatting == "openai") return openai(row, source, source.column("messages", "messages"));
  if (has_column(row, "messages")) return openai(row, source, "messages");
  const char* column = has_column(row, "conversations") ? "conversations" : "conversation";
  const ordered_json& list = row[column];
  const auto first_has = [&](const char* name) {
    return list.is_array() && !list.empty() && list[0].is_object() && list[0].contains(name);
  };
  if (first_has("human") && first_has("assistant")) return pairs(row, list);
  const bool roles = first_has("role");
  return roles ? openai(row, source, column) : sharegpt(row, source, column);
}

}  // namespace

Sample read_turns(const ordered_json& row, const DataSource& source) {
  Sample sample = turns_of(row, source);
  if (source.drop_system && !sample.messages.empty() && sample.messages[0].role == "system")
    sample.messages.erase(sample.messages.begin());
  return sample;
}

namespace {

Sample read_any(const ordered_json& value, const DataSource& source) {
  auto has = [&](const char* column) { return find_column(value, column) != nullptr; };
  if (has("input_ids")) return tokens(value);
  if (is_conversation(value, source)) {
    Sample sample = read_turns(value, source);
    want_order(sample.messages);
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
  if (has("instruction")) return alpaca(value, source);
  if (has("query") && value.contains("response")) {  // ms-swift's columns
    DataSource named = source;
    named.formatting = "alpaca";
    named.columns = {{"prompt", "query"},
                     {"response", "response"},
                     {"system", "system"},
                     {"history", "history"},
                     {"tools", "tools"}};
    return alpaca(value, named);
  }
  for (const char* column : {"text", "content"}) {
    if (has(column)) return {.kind = Sample::Kind::kText, .text = text_column(value, column), .format = "text"};
  }
  if (has("chosen") && has("rejected"))
    bad("the row is a preference pair ('chosen' and 'rejected'); set stage: dpo or rm to train on it");
  for (const char* column : {"messages", "conversations", "instruction", "text", "content", "input_ids"})
    if (value.contains(column)) bad("the column '{}' is null", column);
  std::string columns;
  for (const auto& item : value.items()) columns += (columns.empty() ? "" : ", ") + item.key();
  bad("no known format has the columns [{}]; known are messages, conversations, instruction + output, prompt + "
      "completion, text, content, input_ids; describe your columns in dataset_info.json",
      columns);
}

}  // namespace

Sample read_sample(const ordered_json& value, const DataSource& source) {
  Sample sample = read_any(value, source);
  sample.variables_json = read_variables(value);
  return sample;
}

std::string read_variables(const ordered_json& row) {
  const ordered_json* variables = find_column(row, "chat_template_kwargs");
  if (!variables) return "";
  ordered_json object = *variables;
  if (object.is_string()) object = parsed_text(object.get<std::string>(), "'chat_template_kwargs'");
  if (!object.is_object()) bad("'chat_template_kwargs' must be an object, but it is {}", variables->dump());
  return object.dump();
}

Sample without_template(Sample plain) {
  Sample out{.kind = Sample::Kind::kPrompted, .format = plain.format};
  for (const Message& message : plain.messages) (message.role == "assistant" ? out.reply : out.text) += message.content;
  return out;
}

}  // namespace fettle
