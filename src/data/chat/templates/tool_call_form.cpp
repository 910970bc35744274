#include "data/chat/templates/tool_call_form.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/text.h"
#include "data/chat/thinking_tags.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// The call that is rendered to find the form. These words do not occur in templates.
constexpr const char *kName = "qz7_call", *kKey = "qz7_key", *kValue = "qz7_value";

enum class Shown { kNot, kAsPython, kRight };

using Content = ToolCallForm::Content;
constexpr std::array kContents = {Content::kLeftOut, Content::kNone, Content::kEmptyText};

void set_content(ordered_json& message, Content content) {
  if (content == Content::kLeftOut)
    message.erase("content");
  else
    message["content"] = content == Content::kNone ? ordered_json() : ordered_json("");
}

ordered_json conversation(Content content, const ordered_json& arguments) {
  const ordered_json call = {
      {"id", "abcdefgh1"}, {"type", "function"}, {"function", {{"name", kName}, {"arguments", arguments}}}};
  ordered_json reply = {{"role", "assistant"}, {"content", ""}, {"tool_calls", ordered_json::array({call})}};
  set_content(reply, content);
  return {{{"role", "user"}, {"content", "a"}},
          reply,
          {{"role", "tool"}, {"tool_call_id", "abcdefgh1"}, {"name", kName}, {"content", "b"}}};
}

Shown shown_call(const std::function<std::string(const ordered_json&)>& render, Content content,
                 const ordered_json& arguments) {
  std::string text;
  try {
    text = render(conversation(content, arguments));
  } catch (const UserError&) {
    return Shown::kNot;
  }
  const auto has = [&text](const std::string& part) { return text.find(part) != std::string::npos; };
  if (!has(kName) || !has(kValue) || (content != Content::kEmptyText && has("None"))) return Shown::kNot;
  return has("'" + std::string(kKey) + "'") ? Shown::kAsPython : Shown::kRight;
}

// Returns the JSON text of a value in the form of Python's json.dumps.
std::string python_json(const ordered_json& value) {
  std::string out;
  const auto join = [&out](const ordered_json& items, char open, char close, const auto& add) {
    out += open;
    bool first = true;
    for (const auto& item : items.items()) {
      if (!std::exchange(first, false)) out += ", ";
      add(item);
    }
    out += close;
  };
  if (value.is_object())
    join(value, '{', '}',
         [&out](const auto& item) { out += ordered_json(item.key()).dump() + ": " + python_json(item.value()); });
  else if (value.is_array())
    join(value, '[', ']', [&out](const auto& item) { out += python_json(item.value()); });
  else
    out = value.dump();
  return out;
}

ordered_json parsed_arguments(const ordered_json& arguments) {
  if (!arguments.is_string()) return arguments;
  const auto& text = arguments.get_ref<const std::string&>();
  if (is_blank(text)) return ordered_json::object();
  if (const auto large = large_integers(text); !large.empty())
    throw UserError(
        "the arguments of a function call have the integer {}, which has more than 64 bits; write it in quotes, as a "
        "string",
        large[0]);
  ordered_json parsed = parse_json_or_discard<ordered_json>(text);
  return parsed.is_object() ? parsed : arguments;
}

// Returns the part of a call that has its name and arguments.
ordered_json& function_of(ordered_json& call) {
  return call.is_object() && call.contains("function") ? call["function"] : call;
}

}  // namespace

ToolCallForm ToolCallForm::of(const std::function<std::string(const ordered_json& messages)>& render) {
  const auto shown = [&render](const ordered_json& arguments) {
    std::array<Shown, kContents.size()> out{};
    std::ranges::transform(kContents, out.begin(),
                           [&](Content content) { return shown_call(render, content, arguments); });
    return out;
  };
  const ordered_json object = {{kKey, kValue}};
  const auto objects = shown(object), texts = shown(python_json(object));
  const Shown best = std::ranges::max(objects);
  ToolCallForm form;
  if (best != Shown::kRight && std::ranges::max(texts) == Shown::kRight)
    form.arguments = best == Shown::kNot ? Arguments::kTexts : Arguments::kAsGiven;
  const auto& used = form.arguments == Arguments::kObjects ? objects : texts;
  const auto renders = [&used](Content content) { return used[static_cast<size_t>(content)] != Shown::kNot; };
  if (const auto first = std::ranges::find_if(kContents, renders); first != kContents.end()) form.for_null = *first;
  form.for_empty = renders(Content::kEmptyText) ? Content::kEmptyText : form.for_null;
  return form;
}

void ToolCallForm::give_to(ordered_json& message) const {
  if (const ordered_json& content = message["content"]; content.is_null())
    set_content(message, for_null);
  else if (content == "")
    set_content(message, for_empty);
  if (!message["tool_calls"].is_array()) return;
  for (ordered_json& call : message["tool_calls"]) {
    ordered_json& function = function_of(call);
    if (!function.is_object() || !function.contains("arguments")) continue;
    ordered_json& value = function["arguments"];
    if (arguments == Arguments::kObjects) value = parsed_arguments(value);
    if (arguments == Arguments::kTexts && !value.is_string()) value = python_json(value);
    if (value.is_string() && is_blank(value.get_ref<const std::string&>())) value = "{}";
  }
}

std::string missing_call(const ordered_json& message, std::string_view text) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return "";
  std::map<std::string, size_t> from;  // for each name, where the search for its next call begins
  for (ordered_json call : *calls) {
    const ordered_json& function = function_of(call);
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    const auto name = function["name"].get<std::string>();
    const std::string id = call.contains("id") && call["id"].is_string() ? call["id"].get<std::string>() : "";
    const size_t at = text.find(name, from[name]);
    if (at != std::string_view::npos)
      from[name] = at + name.size();
    else if (id.empty() || text.find(id) == std::string_view::npos)
      return name;
  }
  return "";
}

}  // namespace fettle
