// Defines ChatTemplate::State: a template with its end-of-turn tokens, and how it renders messages. chat.cpp makes it
// and encodes the texts; chat_turns.cpp finds the assistant's turns in them.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>

#include "data/chat/chat.h"
#include "data/chat/templates/tool_call_form.h"
#include "jinja/template.h"

namespace fettle {

// A text that does not occur in data. Rendered as the content of a message, it shows where the template puts the
// content.
inline constexpr std::string_view kContentMark = "Qz7FettleMark7zQ";

struct TurnSpan {
  size_t begin, end;  // positions in the text, in bytes
  size_t message;
  bool trained;
  bool prompt_thinks = false;  // the turn's prompt opens a thinking block, but the turn has no thought
};

// A conversation as a template gets it.
struct TemplateInput {
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools = {};      // null: none
  nlohmann::ordered_json variables = {};  // null: none

  // Returns the same with only the first `count` messages.
  TemplateInput first(size_t count) const {
    const auto begin = messages.begin();
    return {nlohmann::ordered_json(begin, begin + static_cast<std::ptrdiff_t>(count)), tools, variables};
  }
};

// A template, and the form in which it renders tool calls.
struct TemplateSource {
  std::string text;
  jinja::Template with;
  ToolCallForm calls = {};
};

struct ChatTemplate::State {
  State(const Tokenizer& tokenizer, std::string name, const std::string& source, const std::string& with_tools)
      : tokenizer(tokenizer),
        name(std::move(name)),
        plain{source, jinja::Template(source, this->name)},
        tools{with_tools, jinja::Template(with_tools, this->name + " (tool_use)")} {}

  const Tokenizer& tokenizer;
  std::string name;
  TemplateSource plain, tools;  // `tools` renders conversations with tools
  bool built_in = false;
  bool of_recipe = false;  // the template is a text in the recipe
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  std::vector<std::string> stops;  // the texts of stop_ids
  std::vector<int32_t> stop_ids;
  std::optional<int32_t> reply_end;  // the token with which a trained reply ends
  std::string uninvited;             // a prompt for a reply that the template writes at the end without being asked
  std::optional<LocalTime> now;      // nullopt: the time of each call of rendered()
  mutable std::mutex counting;       // protects `counts`
  mutable Counts counts = {};

  void add_stop(const std::string& token);
  const TemplateSource& source_for(const nlohmann::ordered_json& tools) const {
    return tools.is_null() ? plain : this->tools;
  }

  [[noreturn]] void refuse_unrendered(std::string_view what) const;  // throws UserError
  jinja::Template::Rendered rendered(TemplateInput input, bool for_reply) const;
  // Returns the conversation as the template gets it. The role `developer` becomes `system` unless the template names
  // it. Throws UserError for what the template does not render.
  TemplateInput input(const Conversation& conversation) const;

  // Returns the text without a prompt for a reply at its end (`uninvited`).
  std::string_view without_prompt(std::string_view text) const {
    return text.substr(0, text.size() - (text.ends_with(uninvited) ? uninvited.size() : 0));
  }
  // Returns the end of the first end-of-turn token at or after `at`; nullopt when there is none.
  std::optional<size_t> first_stop(std::string_view text, size_t at) const;
  // Returns the end of the end-of-turn token that follows `at`, perhaps after white space; `at` itself when there is
  // none.
  size_t after_stop(std::string_view text, size_t at) const;
  // Returns the end of the turn in text[begin, end). If the text ends with end-of-turn tokens and white space, the turn
  // ends after the first of these tokens; otherwise it ends at `end`. Sets `stopped` to whether there is such a token.
  size_t trimmed_end(std::string_view text, size_t begin, size_t end, bool& stopped) const;
  // Returns where the content of message `index` begins or ends in `full`. To find this, renders the conversation again
  // with a mark before or after the content. Returns nullopt when the mark changes the rest of the text.
  std::optional<size_t> content_edge(const TemplateInput& input, const std::string& full, size_t index, bool end) const;
  // Finds the assistant's turns in `full`, for a template without {% generation %} marks. Adds to Counts::rewritten.
  // Here and below, `input` is what `messages` became.
  std::vector<TurnSpan> spans_by_prefix(const std::vector<Message>& messages, const TemplateInput& input,
                                        const std::string& full, Counts& counts) const;
  std::vector<TurnSpan> spans_by_marks(const std::vector<Message>& messages, const TemplateInput& input,
                                       const jinja::Template::Rendered& full) const;
  // Adds a span for each marked message (Message::marked) to the spans of the assistant's turns: its content, with the
  // end-of-turn token that follows.
  void add_marked(std::vector<TurnSpan>& spans, const std::vector<Message>& messages, const TemplateInput& input,
                  const std::string& full) const;
  // Requires that each call of a trained turn is in the turn's text.
  void want_calls(const std::vector<TurnSpan>& spans, const std::vector<Message>& messages, const TemplateInput& input,
                  std::string_view text) const;
  // Returns whether the template leaves out the thought of the last reply, although the reply is trained and nothing
  // turns thoughts off. Throws UserError if the reply has nothing else.
  bool loses_thought(const std::vector<Message>& messages, const TemplateInput& input, std::string_view text) const;
  void set_built_in(const BuiltInTemplate& known, const Thinking& thinking);
  void find_uninvited_prompt();
  void find_stops(const std::string& source);
  void find_call_forms();
  // Returns whether both templates render a plain conversation with a system message to the same text, except for white
  // space at its end. In a conversation without one (`system` is false), `other` gets `default_system` as its system
  // message, and white space at the end of the prompt counts.
  bool agrees_with(const State& other, bool system = true, const std::string& default_system = "") const;
  // Returns the text of a built-in template as a model's own template. The text begins with the rule about system
  // messages (give_system) and the values of the template's variables, and has no {% generation %} marks.
  std::string as_own(const std::string& default_system) const;
  // Returns whether the template `source` renders sample conversations as this built-in template does after
  // give_system. Gives `source` only the variables that Transformers sets.
  bool renders_alike(const std::string& source, const std::string& default_system) const;
  std::vector<std::vector<int32_t>> encode_parts(const std::string& text, const std::vector<size_t>& cuts) const;
  void add_between(std::vector<Piece>& pieces, std::vector<int32_t> ids, const std::vector<Message>& messages,
                   size_t first, size_t next) const;
};

}  // namespace fettle
