#include "data/messages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"
#include "data/chat/system_message.h"
#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns whether a part of a content is trained: Axolotl's `train` (true or false) or `weight` (0 or 1). Returns
// nullopt if the part has neither field.
std::optional<bool> part_trained(const ordered_json& part) {
  if (const ordered_json* train = find_column(part, "train")) {
    if (!train->is_boolean()) bad_row("'train' of a content part must be true or false, but it is {}", train->dump());
    return train->get<bool>();
  }
  const ordered_json* weight = find_column(part, "weight");
  if (!weight) return std::nullopt;
  if (*weight != 0 && *weight != 1)
    bad_row("'weight' of a content part must be 0 or 1, but it is {}; only a whole message may have another weight",
            weight->dump());
  return *weight == 1;
}

// Returns the content of a message, which is a text or a list of text parts. If any part has a field that says whether
// the part is trained, sets `spans` to one span for each part that is not empty.
std::string content_of(const ordered_json& value, const std::string& what, std::vector<ContentSpan>* spans = nullptr) {
  if (!value.is_array()) return text_of(value, "'" + what + "'");
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
      bad_row("'{}' has a part of type {}, but only text is supported", what,
              part.is_object() && part.contains("type") ? part["type"].dump() : part.type_name());
    add(text_of(*inner, "'" + what + ".text'"), part_trained(part));
  }
  if (spans && marked) *spans = std::move(parts);
  return text;
}

// Requires that arguments in the form of text are JSON, or blank.
void want_json_arguments(const ordered_json& arguments) {
  if (!arguments.is_string()) return;
  const auto& text = arguments.get_ref<const std::string&>();
  if (is_blank(text)) return;
  if (parse_json_or_discard<ordered_json>(text).is_discarded())
    bad_row("the arguments of a function call are not valid JSON: {}", text.substr(0, 80));
}

// Returns the arguments of a call that is {"name", "arguments"}. Llama 3 calls them `parameters`. A call without them
// has none, but then no other field may have an object, because that may be the arguments.
ordered_json arguments_of(const ordered_json& call) {
  for (const char* field : {"arguments", "parameters"})
    if (const ordered_json* arguments = find_column(call, field)) return *arguments;
  const auto has_object = [](const ordered_json& value) {
    return value.is_object() ||
           (value.is_string() && parse_json_or_discard<ordered_json>(value.get_ref<const std::string&>()).is_object());
  };
  if (call.contains("arguments") || call.contains("parameters")) return ordered_json::object();
  for (const auto& item : call.items())
    if (has_object(item.value()))
      bad_row("a function call has no 'arguments', but '{}'; rename the field to 'arguments': {}", item.key(),
              call.dump().substr(0, 120));
  return ordered_json::object();
}

// Replaces the items of a list that are the JSON text of an object by the objects, as in Parquet files whose objects
// have different fields. `what` names the list in messages of errors.
void parse_objects(ordered_json& list, const std::string& what) {
  for (auto& item : list) {
    if (!item.is_string()) continue;
    if (ordered_json object = json_of_text(item.get<std::string>(), what); object.is_object()) item = std::move(object);
  }
}

// Reads the calls of a message: an array, or its JSON text.
void read_tool_calls(ordered_json& message) {
  if (!message.contains("tool_calls")) return;
  ordered_json& calls = message["tool_calls"];
  calls = list_of(calls, "'tool_calls'");
  if (!calls.is_array()) bad_row("'tool_calls' must be an array, but it is {}", calls.type_name());
  parse_objects(calls, "'tool_calls'");
  for (const auto& call : calls) {
    if (!call.is_object()) bad_row("'tool_calls' must hold objects, but one is {}", call.type_name());
    const ordered_json& function = call.contains("function") ? call["function"] : call;
    if (function.is_object() && function.contains("arguments")) want_json_arguments(function["arguments"]);
  }
}

// Fields of a message that say whether the reply is trained, or which weight its tokens have. They come from OpenAI's
// format, Axolotl, ms-swift and LLaMA-Factory v1.
constexpr const char* kTrainedFields[] = {"train", "training", "loss", "loss_weight", "weight", "loss_scale"};

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
  if (!list->is_array()) bad_row("'{}' must be an array of spans, but it is {}", column, list->type_name());
  std::vector<ContentSpan> spans;
  for (const auto& span : *list) {
    auto offset = [&](const char* name) {
      const ordered_json* value = span.is_object() ? find_column(span, name) : nullptr;
      if (!value || !value->is_number_integer() || *value < 0)
        bad_row("a span of '{}' needs '{}', a whole number from 0 on: {}", column, name, span.dump().substr(0, 120));
      return value->get<int64_t>();
    };
    const int64_t begin = offset("begin_offset"), end = offset("end_offset");
    const ordered_json* train = find_column(span, "train");
    if (!train || !train->is_boolean()) bad_row("a span of '{}' needs 'train': true or false", column);
    const size_t first = byte_of_character(content, begin);
    if (end < begin || first >= content.size())
      bad_row("the span {} of '{}' is not within the content", span.dump().substr(0, 120), column);
    spans.push_back({first, byte_of_character(content, end + 1), train->get<bool>()});
  }
  return spans;
}

// Returns the type of a content part; "" if it has none.
std::string type_of(const ordered_json& part) {
  return part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
}

// Returns the thought that a content part has: LLaMA-Factory v1 has the type reasoning, Mistral's models have the type
// thinking. Returns nullopt for other parts.
std::optional<std::string> thought_of(const ordered_json& part, const std::string& content) {
  for (const auto& [type, field] : {std::pair{"reasoning", "value"}, {"thinking", "thinking"}})
    if (const ordered_json* thought = type_of(part) == type ? find_column(part, field) : nullptr)
      return content_of(*thought, content + "." + field);
  return std::nullopt;
}

// Returns the texts and thoughts of a content as parts in Mistral's form (Message::parts_json); "" if it has no
// thoughts. Leaves out the texts if they are calls of functions.
std::string thinking_parts(const ordered_json& message, const std::string& content, bool texts_are_calls) {
  const ordered_json* list = find_column(message, content);
  if (!list || !list->is_array()) return "";
  ordered_json parts = ordered_json::array();
  bool thinks = false;
  for (const auto& part : *list) {
    if (const auto thought = thought_of(part, content)) {
      thinks = true;
      parts.push_back({{"type", "thinking"}, {"thinking", *thought}});
    } else if (type_of(part) != "tool_call" && !texts_are_calls) {
      parts.push_back({{"type", "text"}, {"text", content_of(ordered_json::array({part}), content)}});
    }
  }
  return thinks ? parts.dump() : "";
}

// Moves thoughts and tool calls from typed parts of the content to fields of the message. Several thoughts become one,
// with an empty line between them. Returns the new message.
ordered_json without_typed_parts(const ordered_json& value, const std::string& content) {
  if (!value.contains(content) || !value[content].is_array()) return value;
  ordered_json out = value, texts = ordered_json::array(), calls = ordered_json::array();
  std::vector<std::string> thoughts;
  for (const auto& part : value[content]) {
    if (const auto thought = thought_of(part, content)) {
      thoughts.push_back(*thought);
    } else if (type_of(part) == "tool_call" && part.contains("value") && part["value"].is_string()) {
      const ordered_json read = ordered_json::parse(tool_calls_json(part["value"].get<std::string>()));
      for (const auto& call : read["tool_calls"]) calls.push_back(call);
    } else {
      texts.push_back(part);
    }
  }
  if (texts.size() == value[content].size()) return value;
  out[content] = texts;
  if (!thoughts.empty()) out["reasoning_content"] = fmt::format("{}", fmt::join(thoughts, "\n\n"));
  if (!calls.empty()) out["tool_calls"] = calls;
  return out;
}

// Reads the content of a message, and the spans of the content that are trained. Spans in the field `names.spans` take
// precedence over spans of the content's parts.
void read_content(const ordered_json& message, const MessageNames& names, Message& out) {
  const ordered_json* content = find_column(message, names.content);
  out.no_content = !content;
  if (content) out.content = content_of(*content, names.content, &out.spans);
  if (auto spans = trained_spans(message, names.spans, out.content); !spans.empty()) out.spans = std::move(spans);
}

// Reads the fields that say whether a message is trained, or which weight its tokens have, into out.train and
// out.weight. If a message has several of them (ms-swift's `loss` and `loss_scale`), multiplies the factors. Without
// any of them and without spans, the message is trained unless `only_marked` is true. Sets out.marked if a field or a
// span says that the message is trained.
void read_weight(const ordered_json& message, bool only_marked, Message& out) {
  constexpr double kLargest = 1000;
  bool marked = !out.spans.empty();
  out.marked = std::ranges::any_of(out.spans, &ContentSpan::train);
  for (const char* name : kTrainedFields) {
    const ordered_json* field = find_column(message, name);
    if (!field) continue;
    marked = out.marked = true;
    const bool flag = name == std::string_view("train") || name == std::string_view("training");
    if (!field->is_boolean() && (flag || !field->is_number()))
      bad_row("'{}' of a message must be {}, but it is {}", name, flag ? "true or false" : "a number, true or false",
              field->dump().substr(0, 80));
    const double factor = field->is_boolean() ? field->get<bool>() : field->get<double>();
    if (!(factor >= 0 && factor <= kLargest))
      bad_row("'{}' of a message must be from 0 to {}, but it is {}", name, kLargest, field->dump());
    out.weight *= factor;
  }
  out.train = out.weight > 0 && (marked || !only_marked);
  out.marked = out.marked && out.train;
  if (!out.train) out.weight = 1;
}

// Turns OpenAI's former field of a single call, function_call, into tool_calls.
void take_former_call(ordered_json& message) {
  const auto found = message.find("function_call");
  if (found == message.end() || !found->is_object()) return;
  const ordered_json call = *found;
  message.erase("function_call");
  if (ordered_json& calls = message["tool_calls"]; calls.empty())
    calls.push_back({{"type", "function"}, {"function", call}});
}

// Returns the fields of a message that only the chat template reads, such as tool_calls and reasoning_content.
ordered_json other_fields(const ordered_json& message, const MessageNames& names) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, field] : message.items())
    if (key != names.role && key != names.content && key != names.spans && key != "role" && key != "content" &&
        !field.is_null() &&
        std::find(std::begin(kTrainedFields), std::end(kTrainedFields), key) == std::end(kTrainedFields))
      out[key] = field;
  take_former_call(out);
  read_tool_calls(out);
  if (out.contains("tool_calls") && out["tool_calls"].empty()) out.erase("tool_calls");
  return out;
}

// Removes each part of `text` from `open` to `close`. Returns what is between them.
std::vector<std::string> cut_out(std::string& text, std::string_view open, std::string_view close) {
  std::vector<std::string> out;
  for (size_t at = 0; (at = text.find(open, at)) != std::string::npos;) {
    const size_t begin = at + open.size(), end = text.find(close, begin);
    if (end == std::string::npos) break;
    out.push_back(text.substr(begin, end - begin));
    text.erase(at, end + close.size() - at);
  }
  return out;
}

// Reads a turn whose content is calls as JSON. As in LLaMA-Factory, a thought in <think> tags may come before the
// calls, and the calls may be in <tool_call> tags with a text around them.
void read_calls(Message& message, ordered_json& extra) {
  std::string text(trimmed(message.content));
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  if (const size_t end = text.find(kClose); text.starts_with(kOpen) && end != std::string::npos) {
    extra["reasoning_content"] = trimmed(std::string_view(text).substr(kOpen.size(), end - kOpen.size()));
    text = std::string(trimmed(std::string_view(text).substr(end + kClose.size())));
  }
  const bool bare = text.starts_with('{') || text.starts_with('[');
  std::vector<std::string> parts;
  if (!bare) parts = cut_out(text, "<tool_call>", "</tool_call>");
  if (parts.empty()) parts.push_back(std::exchange(text, ""));
  for (const std::string& part : parts) {
    const ordered_json read = ordered_json::parse(tool_calls_json(part));
    for (const auto& call : read["tool_calls"]) extra["tool_calls"].push_back(call);
  }
  message.role = "assistant";
  message.content = trimmed(text);
}

// The roles for which an entry may have a tag, with their names in OpenAI's and in ShareGPT's format.
struct RoleTag {
  const char *tag, *role, *of_sharegpt;
};
constexpr RoleTag kRoleTags[] = {{"user_tag", "user", "human"},
                                 {"assistant_tag", "assistant", "gpt"},
                                 {"observation_tag", "tool", "observation"},
                                 {"function_tag", "function_call", "function_call"},
                                 {"system_tag", "system", "system"}};

// Returns the tag that an entry needs for a role of this name; "" if the name does not tell.
std::string_view tag_of(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"response", "observation_tag"}, {"result", "observation_tag"},
      {"call", "function_tag"},        {"user", "user_tag"},
      {"human", "user_tag"},           {"prompter", "user_tag"},
      {"assistant", "assistant_tag"},  {"model", "assistant_tag"},
      {"bot", "assistant_tag"},        {"gpt", "assistant_tag"},
      {"bing", "assistant_tag"},       {"bard", "assistant_tag"},
      {"system", "system_tag"}};
  const std::string lower = lower_case(name);
  const auto* found =
      std::ranges::find_if(kWords, [&](const auto& one) { return lower.find(one.first) != std::string::npos; });
  return found == std::end(kWords) ? "" : found->second;
}

// Throws for a message of a role without a meaning. A tag of an entry replaces the usual names, so the tag in the
// message has these names too.
[[noreturn]] void refuse_role(const std::string& name, const MessageNames& names) {
  const std::string_view tag = tag_of(name);
  const auto* meant = std::ranges::find(kRoleTags, tag, &RoleTag::tag);
  std::string known, listed;
  for (const auto& [one, role] : names.roles) {
    known += " " + one;
    if (meant != std::end(kRoleTags) && role == meant->role) listed += fmt::format("\"{}\", ", one);
  }
  const std::string entry = tag.empty()
                                ? "its tag (user_tag, assistant_tag, system_tag, function_tag or observation_tag)"
                                : fmt::format("\"tags\": {{\"{}\": [{}\"{}\"]}}", tag, listed, name);
  bad_row("the role '{}' is not known; use one of{}, or name it in an entry of dataset_info.json or of `dataset`: {}",
          name, known, entry);
}

Message read_message(const ordered_json& given, const MessageNames& names) {
  if (!given.is_object()) bad_row("a message must be an object, but it is {}", given.type_name());
  const ordered_json value = without_typed_parts(given, names.content);
  const ordered_json* name = find_column(value, names.role);
  if (!name || !name->is_string()) bad_row("a message has no '{}': {}", names.role, value.dump().substr(0, 120));
  const auto role = names.roles.find(name->get<std::string>());
  if (role == names.roles.end()) refuse_role(name->get<std::string>(), names);
  Message message{.role = role->second};
  read_content(value, names, message);
  read_weight(value, names.only_marked, message);
  ordered_json extra = other_fields(value, names);
  if (!value.contains(names.content) && !extra.contains("tool_calls"))
    bad_row("a message of role '{}' has no '{}'", role->first, names.content);
  if (message.role == "user" && message.no_content)
    bad_row("the '{}' of a message of role '{}' is null", names.content, role->first);
  const bool calls = message.role == "function_call";
  if (calls) read_calls(message, extra);
  if (!extra.empty()) message.extra_json = extra.dump();
  message.parts_json = thinking_parts(given, names.content, calls);
  return message;
}

// Adds the calls of a function_call turn to the assistant's turn before it, as ms-swift does. Returns false, and
// changes nothing, if the function_call turn has more than calls, or if the turns are not trained alike.
bool join_calls(Message& before, const Message& turn) {
  const auto fields = [](const Message& one) {
    return one.extra_json.empty() ? ordered_json::object() : ordered_json::parse(one.extra_json);
  };
  const ordered_json calls = fields(turn);
  if (before.role != "assistant" || !before.spans.empty() || before.train != turn.train ||
      before.weight != turn.weight || !turn.content.empty() || calls.size() != 1 || !calls.contains("tool_calls"))
    return false;
  ordered_json extra = fields(before);
  for (const auto& call : calls["tool_calls"]) extra["tool_calls"].push_back(call);
  before.extra_json = extra.dump();
  before.marked = before.marked || turn.marked;
  return true;
}

}  // namespace

MessageNames message_names(const DataSource& source, bool sharegpt) {
  MessageNames names{.role = source.tag("role_tag", sharegpt ? "from" : "role"),
                     .content = source.tag("content_tag", sharegpt ? "value" : "content"),
                     .spans = source.tag("spans_tag", kSpansColumn),
                     .only_marked = source.only_marked};
  names.user = source.tag("user_tag", sharegpt ? "human" : "user");
  names.assistant = source.tag("assistant_tag", sharegpt ? "gpt" : "assistant");
  for (const RoleTag& one : kRoleTags) {
    const auto [first, last] = source.tags.equal_range(one.tag);
    for (auto name = first; name != last; ++name) names.roles.emplace(name->second, one.role);
  }
  for (const RoleTag& one : kRoleTags)
    if (!source.tags.contains(one.tag))
      for (const char* usual : {one.role, one.of_sharegpt}) names.roles.emplace(usual, one.role);
  for (const char* role : {"developer", "function", "ipython"}) names.roles.emplace(role, role);
  names.roles.emplace("tool_call", "function_call");  // ms-swift's names
  names.roles.emplace("tool_response", "tool");
  return names;
}

std::vector<Message> read_messages(const ordered_json& list, const std::string& column, const MessageNames& names) {
  if (!list.is_array()) bad_row("'{}' must be an array of messages, but it is {}", column, list.type_name());
  std::vector<Message> out;
  bool former_calls = false;
  for (const auto& message : list) {
    Message one = read_message(message, names);
    const bool calls = names.roles.at(message[names.role].get<std::string>()) == "function_call";
    if (!calls || out.empty() || !join_calls(out.back(), one)) out.push_back(std::move(one));
    former_calls = former_calls || (message.contains("function_call") && message["function_call"].is_object());
  }
  // The results of calls in OpenAI's former field have the role `function`. Templates know them as `tool`.
  if (former_calls)
    for (Message& message : out)
      if (message.role == "function") message.role = "tool";
  return out;
}

std::string role_of(const ordered_json& turn, const MessageNames& names) {
  if (!turn.is_object() || !turn.contains(names.role) || !turn[names.role].is_string()) return "";
  const auto found = names.roles.find(turn[names.role].get<std::string>());
  return found == names.roles.end() ? "" : found->second;
}

std::string tools_of(const ordered_json& row, const std::string& column) {
  const ordered_json* value = find_column(row, column);
  if (!value) return "";
  ordered_json tools = list_of(*value, "'" + column + "'");
  if (!tools.is_array()) bad_row("'{}' must be an array of tools, but it is {}", column, tools.type_name());
  parse_objects(tools, "'" + column + "'");
  for (auto& tool : tools) {
    if (!tool.is_object()) bad_row("'{}' must hold objects, but one is {}", column, tool.type_name());
    if (tool.contains("name") && !tool.contains("function")) {
      tool.erase("type");
      tool = {{"type", "function"}, {"function", tool}};
    }
  }
  return tools.empty() ? "" : tools.dump();
}

std::string tool_calls_json(const std::string& text) {
  ordered_json calls = json_of_text(text, "the function call");
  if (calls.is_discarded()) bad_row("the function call is not valid JSON: {}", text.substr(0, 80));
  if (!calls.is_array()) calls = ordered_json::array({calls});
  ordered_json out = ordered_json::array();
  for (const auto& call : calls) {
    if (!call.is_object() || !call.contains("name"))
      bad_row("a function call must have name and arguments: {}", call.dump());
    const ordered_json arguments = arguments_of(call);
    want_json_arguments(arguments);
    out.push_back({{"type", "function"}, {"function", {{"name", call["name"]}, {"arguments", arguments}}}});
  }
  return ordered_json{{"tool_calls", out}}.dump();
}

bool has_calls_or_thought(const Message& message) {
  if (message.extra_json.empty()) return false;
  const auto extra = nlohmann::json::parse(message.extra_json);
  if (extra.contains("tool_calls") && !extra["tool_calls"].empty()) return true;
  return std::ranges::any_of(std::array{"reasoning_content", "thinking", "reasoning"},
                             [&](const char* name) { return !is_blank(text_in(extra, name)); });
}

void want_order_of_turns(const std::vector<Message>& messages) {
  if (messages.empty()) bad_row("the conversation has no messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const std::string before = i ? messages[i - 1].role : "";
    if (role == "assistant" && before == "assistant")
      bad_row("messages {} and {} are both the assistant's; join them, or put the user's turn between them", i, i + 1);
    if (role == "assistant" && messages[i].train && (i == 0 || (i == 1 && is_system(before))))
      bad_row(
          "message {} is the assistant's, but no user or tool spoke before it; if it is a greeting, give it "
          "\"train\": false",
          i + 1);
    if (role == "user" && before == "user")
      bad_row("messages {} and {} are both the user's; join them, or put the reply between them", i, i + 1);
    if (is_system(role) && i == 1 && before == role) bad_row("messages 1 and 2 are both of role '{}'; join them", role);
  }
}

void want_order(const std::vector<Message>& messages) {
  want_order_of_turns(messages);
  if (messages.back().role != "assistant")
    bad_row("the conversation ends with a turn of role '{}'; the last turn must be the assistant's",
            messages.back().role);
}

}  // namespace fettle
