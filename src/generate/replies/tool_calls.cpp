#include "generate/replies/tool_calls.h"

#include <algorithm>

#include "base/json_text.h"
#include "base/text.h"
#include "data/chat/tool_formats.h"
#include "generate/replies/loose_json.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using Calls = std::optional<std::vector<ToolCall>>;

constexpr int kMostEnds = 64;  // read_llama tries at most this many ends for one call

// Returns the text before `mark`, and removes this text and the mark from `text`. Returns nullopt when there is no such
// mark.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

bool take(std::string_view& text, std::string_view mark) {
  text = text.substr(std::min(text.find_first_not_of(kSpaces), text.size()));
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

ordered_json json_of(std::string_view text) {
  return parse_json_or_discard<ordered_json>(text);
}

// Returns the call of a tool with JSON arguments; nullopt when the name is empty or the arguments are not an object.
std::optional<ToolCall> call_of(std::string_view name, const ordered_json& arguments) {
  if (trimmed(name).empty() || !arguments.is_object()) return std::nullopt;
  return ToolCall{std::string(trimmed(name)), arguments.dump()};
}

// Reads {"name": ..., "arguments": {...}}. "arguments" may also be called "parameters", and its value may also be a
// string that contains JSON.
std::optional<ToolCall> call_of(const ordered_json& object) {
  if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) return std::nullopt;
  for (const char* field : {"arguments", "parameters"}) {
    const auto at = object.find(field);
    if (at == object.end()) continue;
    return call_of(object["name"].get<std::string>(),
                   at->is_string() ? json_of(at->get_ref<const std::string&>()) : *at);
  }
  return std::nullopt;
}

Calls only(const std::optional<ToolCall>& call) {
  return call ? Calls({*call}) : std::nullopt;
}

// Reads {"name": "f", "arguments": {...}}
Calls read_object(std::string_view text, const ToolTypes&) {
  return only(call_of(json_of(text)));
}

// Reads {"name": "f", "parameters": {...}}, or several such objects with ';' between them. A reply may also be other
// JSON, so an object counts as a call only if its "name" is a tool of the request.
Calls read_llama(std::string_view text, const ToolTypes& types) {
  std::vector<ToolCall> calls;
  text = trimmed(text);
  while (!text.empty()) {
    // A ';' may also be a part of a string, so each one is tried as the end of the object.
    std::optional<ToolCall> call;
    size_t end = 0;
    int tries = 0;
    do {
      end = std::min(text.find(';', end), text.size());
      if (!trimmed(text.substr(0, end)).ends_with('}')) continue;
      if (++tries > kMostEnds) return std::nullopt;
      call = call_of(json_of(text.substr(0, end)));
    } while (!call && end++ < text.size());
    if (!call || !types.knows(call->name)) return std::nullopt;
    calls.push_back(*call);
    text = trimmed(text.substr(std::min(end + 1, text.size())));
  }
  return calls.empty() ? std::nullopt : Calls(calls);
}

// The texts of a call that is written as XML.
struct XmlForm {
  std::string_view call, parameter;  // the texts before a tool's name and before a parameter's name
  std::string_view name_end;         // the text after such a name
  std::string_view call_end;
};

constexpr XmlForm kFunctionXml{"<function=", "<parameter=", ">", "</function>"};
constexpr XmlForm kInvokeXml{"<invoke name=\"", "<parameter name=\"", "\">", "</invoke>"};

// Reads one or more calls such as <function=f><parameter=x>1</parameter></function>
Calls read_xml(std::string_view text, const ToolTypes& types, const XmlForm& form) {
  std::vector<ToolCall> calls;
  while (take(text, form.call)) {
    const auto name = take_until(text, form.name_end);
    if (!name) return std::nullopt;
    const std::string tool(trimmed(*name));
    ordered_json arguments = ordered_json::object();
    while (take(text, form.parameter)) {
      const auto key = take_until(text, form.name_end);
      auto value = key ? take_until(text, "</parameter>") : std::nullopt;
      if (!value) return std::nullopt;
      // Some templates write one newline on each side of the value.
      if (value->starts_with('\n')) value->remove_prefix(1);
      if (value->ends_with('\n')) value->remove_suffix(1);
      const std::string argument(trimmed(*key));
      arguments[argument] = types.value(tool, argument, std::string(*value));
    }
    const auto call = take(text, form.call_end) ? call_of(tool, arguments) : std::nullopt;
    if (!call) return std::nullopt;
    calls.push_back(*call);
  }
  return calls.empty() || !trimmed(text).empty() ? std::nullopt : Calls(calls);
}

Calls read_function_xml(std::string_view text, const ToolTypes& types) {
  return read_xml(text, types, kFunctionXml);
}

Calls read_minimax(std::string_view text, const ToolTypes& types) {
  return read_xml(text, types, kInvokeXml);
}

// Reads f<arg_key>x</arg_key><arg_value>1</arg_value>
Calls read_glm(std::string_view text, const ToolTypes& types) {
  const size_t end = std::min(text.find("<arg_key>"), text.size());
  const std::string tool(trimmed(text.substr(0, end)));
  text.remove_prefix(end);
  if (tool.empty() || tool.find_first_of(" \n{<") != std::string::npos) return std::nullopt;
  ordered_json arguments = ordered_json::object();
  while (take(text, "<arg_key>")) {
    const auto key = take_until(text, "</arg_key>");
    const auto value = key && take(text, "<arg_value>") ? take_until(text, "</arg_value>") : std::nullopt;
    if (!value) return std::nullopt;
    const std::string argument(trimmed(*key));
    arguments[argument] = types.value(tool, argument, std::string(*value));
  }
  if (!trimmed(text).empty()) return std::nullopt;
  return only(call_of(tool, arguments));
}

// Reads [{"name": "f", "arguments": {...}}, ...]
Calls calls_of_list(const ordered_json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<ToolCall> calls;
  for (const ordered_json& one : list) {
    const auto call = call_of(one);
    if (!call) return std::nullopt;
    calls.push_back(*call);
  }
  return calls.empty() ? std::nullopt : Calls(calls);
}

// Reads a list of objects, or calls such as f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}. [CALL_ID]id may stand before [ARGS].
Calls read_mistral(std::string_view text, const ToolTypes&) {
  if (trimmed(text).starts_with('[')) return calls_of_list(json_of(text));
  std::vector<ToolCall> calls;
  while (!text.empty()) {
    const auto until_next = take_until(text, "[TOOL_CALLS]");
    const std::string_view one = until_next ? *until_next : std::exchange(text, "");
    const size_t brace = one.find('{');
    if (brace == std::string_view::npos) return std::nullopt;
    const auto call = call_of(one.substr(0, std::min(one.find('['), brace)), json_of(one.substr(brace)));
    if (!call) return std::nullopt;
    calls.push_back(*call);
  }
  return calls.empty() ? std::nullopt : Calls(calls);
}

// Reads a call: the tool's name, a newline and the arguments {...}. Several calls have <|assistant|> between them.
Calls read_glm4(std::string_view text, const ToolTypes& types) {
  std::vector<ToolCall> calls;
  while (!text.empty()) {
    const auto until_next = take_until(text, "<|assistant|>");
    std::string_view one = trimmed(until_next ? *until_next : std::exchange(text, ""));
    const auto name = take_until(one, "\n");
    const auto call = name ? call_of(*name, json_of(one)) : std::nullopt;
    if (!call || !types.knows(call->name)) return std::nullopt;
    calls.push_back(*call);
  }
  return calls.empty() ? std::nullopt : Calls(calls);
}

// Reads call:f{x:<|"|>text<|"|>,y:1}
Calls read_gemma4(std::string_view text, const ToolTypes&) {
  const auto name = take(text, "call:") ? take_until(text, "{") : std::nullopt;
  if (!name) return std::nullopt;
  return only(call_of(*name, json_of(loose_as_json("{" + std::string(text)))));
}

// Reads [{"name": "f", "arguments": {...}}, ...]
Calls read_list(std::string_view text, const ToolTypes&) {
  return calls_of_list(json_of(text));
}

// Reads f(x="text", y=1), each call on a line of its own
Calls read_olmo3(std::string_view text, const ToolTypes&) {
  std::string list;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const size_t end = std::min(text.find('\n'), text.size());
    list += (list.empty() ? "[" : ",") + std::string(text.substr(0, end));
    text.remove_prefix(end);
  }
  return calls_of_list(json_of(loose_as_json(list + "]")));
}

// Reads <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}<|tool_call_end|>
Calls read_kimi(std::string_view text, const ToolTypes&) {
  std::vector<ToolCall> calls;
  while (take(text, "<|tool_call_begin|>")) {
    const auto id = take_until(text, "<|tool_call_argument_begin|>");
    const auto arguments = id ? take_until(text, "<|tool_call_end|>") : std::nullopt;
    if (!arguments) return std::nullopt;
    std::string_view name = trimmed(*id);
    name = name.substr(0, name.rfind(':'));
    if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
    auto call = call_of(name, json_of(*arguments));
    if (!call) return std::nullopt;
    call->id = trimmed(*id);
    calls.push_back(*call);
  }
  return calls.empty() || !trimmed(text).empty() ? std::nullopt : Calls(calls);
}

// Reads [f(x="text", y=1), g()], or a list of objects
Calls read_lfm2(std::string_view text, const ToolTypes&) {
  const ordered_json calls = json_of(loose_as_json(text));
  return calls.is_array() ? calls_of_list(calls) : only(call_of(calls));
}

// Reads calls, each with a mark before it and after it. A call is function<｜tool▁sep｜>f with arguments in a Markdown
// block (V3, R1), or f<｜tool▁sep｜>{...} (V3.1).
Calls read_deepseek(std::string_view text, const ToolTypes&) {
  std::vector<ToolCall> calls;
  while (take(text, "<｜tool▁call▁begin｜>")) {
    auto one = take_until(text, "<｜tool▁call▁end｜>");
    const auto before = one ? take_until(*one, "<｜tool▁sep｜>") : std::nullopt;
    if (!before) return std::nullopt;
    std::string_view name = trimmed(*before), arguments = *one;
    if (name == "function") {
      const auto title = take_until(arguments, "\n```json");
      const auto block = title ? take_until(arguments, "```") : std::nullopt;
      if (!block) return std::nullopt;
      name = *title;
      arguments = *block;
    }
    const auto call = call_of(name, json_of(arguments));
    if (!call) return std::nullopt;
    calls.push_back(*call);
  }
  return calls.empty() || !trimmed(text).empty() ? std::nullopt : Calls(calls);
}

const std::vector<CallForm>& call_forms() {
  static const std::vector<CallForm> forms = {
      {.format = "qwen", .begin = "<tool_call>", .end = "</tool_call>", .read = read_object},
      {.format = "qwen3_5", .begin = "<tool_call>", .end = "</tool_call>", .read = read_function_xml},
      {.format = "glm4_moe",
       .begin = "<tool_call>",
       .end = "</tool_call>",
       .read = read_glm,
       .marks = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
      {.format = "llama3", .begin = "<|python_tag|>", .end = "", .first = "{", .read = read_llama},
      {.format = "mistral",
       .begin = "[TOOL_CALLS]",
       .end = "",
       .short_ids = true,
       .read = read_mistral,
       .marks = {"[ARGS]", "[CALL_ID]"}},
      {.format = "deepseek",
       .begin = "<｜tool▁calls▁begin｜>",
       .end = "<｜tool▁calls▁end｜>",
       .read = read_deepseek,
       .marks = {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}},
      {.format = "glm4", .begin = "<|assistant|>", .end = "", .by_name = true, .read = read_glm4},
      {.format = "gemma4", .begin = "<|tool_call>", .end = "<tool_call|>", .read = read_gemma4, .marks = {"<|\"|>"}},
      {.format = "lfm2", .begin = "<|tool_call_start|>", .end = "<|tool_call_end|>", .read = read_lfm2},
      {.format = "kimi_k2",
       .begin = "<|tool_calls_section_begin|>",
       .end = "<|tool_calls_section_end|>",
       .read = read_kimi,
       .marks = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"}},
      {.format = "nemotron", .begin = "<TOOLCALL>", .end = "</TOOLCALL>", .read = read_list},
      {.format = "olmo3", .begin = "<function_calls>", .end = "</function_calls>", .read = read_olmo3},
      {.format = "minimax2", .begin = "<minimax:tool_call>", .end = "</minimax:tool_call>", .read = read_minimax},
      {.format = "seed_oss", .begin = "<seed:tool_call>", .end = "</seed:tool_call>", .read = read_function_xml},
  };
  return forms;
}

}  // namespace

ToolTypes::ToolTypes(const std::string& tools_json) : tools_(ordered_json::object()) {
  if (tools_json.empty()) return;
  for (const ordered_json& tool : json_of(tools_json)) {
    const ordered_json function = tool.is_object() ? tool.value("function", tool) : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    const ordered_json parameters = function.value("parameters", ordered_json());
    tools_[function["name"].get<std::string>()] =
        parameters.is_object() ? parameters.value("properties", ordered_json()) : ordered_json();
  }
}

bool ToolTypes::knows(const std::string& tool) const {
  return tools_.contains(tool);
}

std::optional<bool> ToolTypes::begins_with_name(std::string_view text) const {
  for (const auto& [name, properties] : tools_.items()) {
    const std::string line = name + "\n";
    if (text.starts_with(line)) return true;
    if (line.starts_with(text)) return std::nullopt;
  }
  return false;
}

ordered_json ToolTypes::value(const std::string& tool, const std::string& argument, const std::string& text) const {
  const ordered_json properties = tools_.value(tool, ordered_json());
  const ordered_json schema = properties.is_object() ? properties.value(argument, ordered_json()) : ordered_json();
  const ordered_json type = schema.is_object() ? schema.value("type", ordered_json()) : ordered_json();
  if (type == "string") return text;
  // Some templates write true, false and null as Python does.
  for (const auto& [python, json] : {std::pair{"True", ordered_json(true)}, {"False", false}, {"None", nullptr}})
    if (text == python) return json;
  ordered_json value = json_of(text);
  if (value.is_discarded() && text.find_first_of("[{") == 0) value = json_of(loose_as_json(text));
  return value.is_discarded() ? ordered_json(text) : value;
}

const CallForm* call_form_of(const std::string& source) {
  for (const std::string_view format : tool_formats_of(source)) {
    const auto at = std::ranges::find(call_forms(), format, &CallForm::format);
    if (at != call_forms().end()) return &*at;
  }
  return nullptr;
}

}  // namespace fettle
