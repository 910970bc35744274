// Writes built-in chat templates for other programs (ChatTemplate::written).
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chat/chat.h"
#include "data/chat/chat_state.h"
#include "data/chat/fixed_eos_token.h"
#include "data/chat/system_message.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns a value as Jinja writes it.
std::string literal(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  internal_check(value.is_string(), "a variable of a built-in template is {}", value.dump());
  std::string out = "'";
  for (const char c : value.get_ref<const std::string&>()) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\\' || c == '\'')
      out += {'\\', c};
    else
      out += c;
  }
  return out + "'";
}

std::string set_variable(const std::string& name, const ordered_json& value) {
  return fmt::format("{{%- set {} = {} %}}", name, literal(value));
}

// Returns what give_system does with a built-in template or a default system message, as Jinja text.
std::string system_rule(const std::string& default_system) {
  std::string out =
      "{%- if messages and messages[0].role == 'system' and not messages[0].content %}"
      "{%- set messages = messages[1:] %}{%- endif %}\n";
  if (!default_system.empty())
    out += "{%- if not messages or messages[0].role != 'system' %}{%- set messages = [{'role': 'system', 'content': " +
           literal(default_system) + "}] + messages %}{%- endif %}\n";
  return out;
}

// Returns conversations with a system message, with an empty one and without one, and of one and two turns.
std::vector<std::vector<Message>> sample_talks() {
  const Message system{.role = "system", .content = "Be brief."}, empty{.role = "system", .content = ""},
      user{.role = "user", .content = "It's 2+2?"}, reply{.role = "assistant", .content = "4 \\"},
      thought{.role = "assistant", .content = "4", .extra_json = R"({"reasoning_content": "Sum."})"};
  return {{user},         {user, reply},
          {system, user}, {system, user, reply, user},
          {empty, user},  {user, thought, user, thought}};
}

// Returns the text of a built-in template without {% generation %} marks. Only Transformers knows the marks; most other
// programs refuse a template that has them. `if true` keeps the marks' white space.
std::string without_marks(std::string text) {
  return replace_all(replace_all(std::move(text), "endgeneration %}", "endif %}"), "generation %}", "if true %}");
}

// Returns the model's own template if it renders tools, and if the model has no template with the name that
// Transformers uses for conversations with tools; "" otherwise.
std::string own_for_tools(const Tokenizer& tokenizer) {
  const std::optional<std::string> own = tokenizer.chat_template();
  if (!own || tokenizer.chat_template("tool_use")) return "";
  try {
    return jinja::Template(*own).reads("tools") ? *own : "";
  } catch (const UserError&) {
    return "";  // Fettle cannot read it
  }
}

}  // namespace

std::string with_fixed_eos_token(const std::string& source, const std::string& eos_token) {
  return source.find("eos_token") == std::string::npos ? source : set_variable("eos_token", eos_token) + "\n" + source;
}

std::string ChatTemplate::State::as_own(const std::string& default_system) const {
  std::string out = system_rule(default_system);
  for (const auto& [name, value] : variables.items()) {
    if (!plain.with.reads(name)) continue;
    const std::string set = set_variable(name, value);
    // Callers may turn thoughts on and off.
    if (name == "enable_thinking")
      out += "{%- if enable_thinking is not defined %}" + set + "{%- endif %}\n";
    else
      out += set + "\n";
  }
  return out + without_marks(plain.text);
}

bool ChatTemplate::State::renders_alike(const std::string& source, const std::string& default_system) const {
  const jinja::Template with(source);
  ordered_json context = {{"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [key, token] : tokenizer.named_tokens()) context[key] = token;
  for (std::vector<Message> talk : sample_talks()) {
    context["messages"] = input({talk}).messages;
    give_system(talk, default_system, true);
    const TemplateInput trained = input({talk});
    for (const bool for_reply : {false, true}) {
      context["add_generation_prompt"] = for_reply;
      const std::string text = with.render(context, now ? *now : LocalTime::now()).text;
      if (text != rendered(trained, for_reply).text) return false;
    }
  }
  return true;
}

std::optional<ChatTemplate::Written> ChatTemplate::written(const std::string& default_system) const {
  if (state_->of_recipe) {
    const Tokenizer& tokenizer = state_->tokenizer;
    if (tokenizer.chat_template() == state_->plain.text && default_system.empty()) return std::nullopt;
    const std::string text =
        (default_system.empty() ? "" : system_rule(default_system)) + without_marks(state_->plain.text);
    return Written{text, tokenizer.chat_template("tool_use") ? text : ""};
  }
  if (!state_->built_in) return std::nullopt;
  if (with_calls_ && with_calls_->agrees_with(*state_, false, default_system)) return std::nullopt;
  std::string source = state_->as_own(default_system);
  if (!state_->renders_alike(source, default_system)) {
    warn(
        "{} cannot be written as a chat template of the result, which keeps the base's files; use it with the key "
        "`template` of this recipe",
        state_->name);
    return std::nullopt;
  }
  return Written{std::move(source), own_for_tools(state_->tokenizer)};
}

}  // namespace fettle
