// Writes built-in chat templates for other programs (ChatTemplate::written).
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/chat/chat.h"
#include "data/chat/chat_state.h"

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

// Returns conversations with and without a system message, and of one and two turns.
std::vector<ordered_json> sample_talks() {
  const ordered_json system = {{"role", "system"}, {"content", "Be brief."}},
                     user = {{"role", "user"}, {"content", "It's 2+2?"}},
                     reply = {{"role", "assistant"}, {"content", "4 \\"}},
                     thought = {{"role", "assistant"}, {"content", "4"}, {"reasoning_content", "Sum."}};
  return {ordered_json::array({user}), ordered_json::array({user, reply}), ordered_json::array({system, user}),
          ordered_json::array({system, user, reply, user}), ordered_json::array({user, thought, user, thought})};
}

// Returns the text of a built-in template without {% generation %} marks. Only Transformers knows the marks; most other
// programs refuse a template that has them. `if true` keeps the marks' white space.
std::string without_marks(std::string text) {
  return replace_all(replace_all(std::move(text), "endgeneration %}", "endif %}"), "generation %}", "if true %}");
}

// Returns whether the template `source` renders the sample conversations as `rendered` does. Gives `source` only the
// variables that Transformers sets.
template <typename Rendered>
bool renders_alike(const std::string& source, const Tokenizer& tokenizer, const LocalTime& now, Rendered rendered) {
  const jinja::Template with(source);
  ordered_json context = {{"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [key, token] : {std::pair{"bos_token", tokenizer.bos_token()},
                                   {"eos_token", tokenizer.eos_token()},
                                   {"pad_token", tokenizer.pad_token()}})
    if (!token.empty()) context[key] = token;
  for (const ordered_json& talk : sample_talks())
    for (const bool for_reply : {false, true}) {
      context["messages"] = talk;
      context["add_generation_prompt"] = for_reply;
      if (with.render(context, now).text != rendered(talk, for_reply)) return false;
    }
  return true;
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

std::string ChatTemplate::State::with_values(const TemplateInput& given) const {
  std::string out;
  ordered_json values = variables;
  for (const auto& [name, value] : given.variables.items()) values[name] = value;
  for (const auto& [name, value] : values.items()) {
    if (!plain.with.reads(name)) continue;
    const std::string set = fmt::format("{{%- set {} = {} %}}", name, literal(value));
    // Callers may turn thoughts on and off.
    if (name == "enable_thinking")
      out += "{%- if enable_thinking is not defined %}" + set + "{%- endif %}\n";
    else
      out += set + "\n";
  }
  return out + without_marks(plain.text);
}

std::optional<ChatTemplate::Written> ChatTemplate::written(const std::string& default_system) const {
  if (state_->of_recipe) {
    const Tokenizer& tokenizer = state_->tokenizer;
    if (tokenizer.chat_template() == state_->plain.text) return std::nullopt;
    const std::string text = without_marks(state_->plain.text);
    return Written{text, tokenizer.chat_template("tool_use") ? text : ""};
  }
  if (!state_->built_in) return std::nullopt;
  TemplateInput given;
  if (!default_system.empty()) given.variables["default_system"] = default_system;
  if (with_calls_ && with_calls_->agrees_with(*state_, false, given)) return std::nullopt;
  std::string source = state_->with_values(given);
  const bool alike = renders_alike(
      source, state_->tokenizer, state_->now,
      [&](const ordered_json& talk, bool for_reply) { return state_->rendered(talk, given, for_reply).text; });
  if (!alike) {
    warn(
        "{} cannot be written as a chat template of the result, which keeps the base's files; use it with the key "
        "`template` of this recipe",
        state_->name);
    return std::nullopt;
  }
  return Written{std::move(source), own_for_tools(state_->tokenizer)};
}

}  // namespace fettle
