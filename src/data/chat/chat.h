// Defines ChatTemplate, which turns a conversation into its text and the spans to train.
//
// The spans to train are the assistant's turns with their end-of-turn tokens, and the contents of other messages that
// the row marks (Message::marked) with theirs. {% generation %} marks in the template show where the turns are. Without
// marks, a turn is the text that follows the prompt for this turn. The text is tokenised without adding special tokens,
// because the template itself writes bos_token where it wants it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/local_time.h"
#include "data/chat/conversation.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct BuiltInTemplate;

// How thoughts (the reasoning before a reply) are rendered. Templates of models that do not think ignore these
// settings.
struct Thinking {
  std::optional<bool> enabled;  // false: prompts end with an empty thought; unset: the template's default
  bool keep_old = false;        // keep thoughts of earlier replies; takes precedence over drop_old
  bool drop_old = false;        // built-in templates leave out thoughts of earlier replies
};

// Returns whether `name`, the recipe's key `template`, is the text of a template. It then replaces the model's own.
bool is_template_text(const std::string& name);
// Returns whether `name`, the recipe's key `template`, names a built-in template.
inline bool names_built_in(const std::string& name) {
  return !name.empty() && !is_template_text(name);
}

class ChatTemplate {
 public:
  // `name` is a built-in template (llama3, chatml, qwen, mistral, alpaca, ...), or the Jinja text of a template. If
  // `name` is empty, the model's own template is used. Keeps the tokenizer by reference. strftime_now in a template
  // gives the time `now`; if it is unset, the time of each call. Throws UserError when the name is unknown, when it is
  // empty and the model has no template of its own, and when the tokenizer lacks the end-of-turn token of a built-in
  // template. Built-in templates do not render tools. So a conversation with tools uses the model's own template if
  // both templates render plain conversations to the same text.
  ChatTemplate(const std::string& name, const Tokenizer& tokenizer, const std::optional<LocalTime>& now = {},
               const Thinking& thinking = {});

  // Return the prompt for the next assistant turn: prompt() as token ids, prompt_text() as text. prompt(),
  // prompt_text(), text() and render() throw UserError when the template refuses the conversation. They are safe to
  // call from several threads.
  std::vector<int32_t> prompt(const Conversation& conversation) const;
  std::string prompt_text(const Conversation& conversation) const;
  // Returns the text of the conversation. It does not end with a prompt for another turn, unless the template always
  // writes one.
  std::string text(const Conversation& conversation) const;

  struct Piece {
    std::vector<int32_t> ids;
    std::string role;               // role of the turn; if the piece has several turns, role of the last one
    bool trained;                   // true: the piece is a turn that is trained, with its end-of-turn token
    std::vector<bool> masked = {};  // only for a trained turn with spans: for each token, true means not trained
    double weight = 1;              // Message::weight of a trained turn
  };
  // Counts of rendered turns. Reports show the counts above zero.
  struct Counts {
    int64_t rewritten = 0;      // turns that the template renders differently when they are not the last turn
    int64_t prompt_thinks = 0;  // prompts that open a thinking block although the training text has none there
    int64_t without_end = 0;    // trained turns that end without an end-of-turn token
    int64_t lost_thoughts = 0;  // trained last turns whose thoughts the template leaves out; not in prompt_thinks

    Counts& operator+=(const Counts& other) {
      rewritten += other.rewritten;
      prompt_thinks += other.prompt_thinks;
      without_end += other.without_end;
      lost_thoughts += other.lost_thoughts;
      return *this;
    }
  };
  // Returns the whole conversation in pieces. The ids of all pieces together are the training example. If the last turn
  // is trained, the text before this turn must equal the prompt for this turn, except for tags of a thinking block.
  // Otherwise, throws UserError with both texts. Earlier turns may be rendered in another way (Counts::rewritten).
  std::vector<Piece> render(const Conversation& conversation) const;
  // The same, but adds this conversation's counts to `counts` and not to those of counts().
  std::vector<Piece> render(const Conversation& conversation, Counts& counts) const;

  // Returns the Jinja text of the template that renders a conversation, with or without tools.
  const std::string& source(bool with_tools) const;

  // Returns the token ids at which generation stops: the ids that end an assistant turn, and eos.
  const std::vector<int32_t>& stop_ids() const;
  // Returns the id of the token with which the template ends a reply; nullopt when there is none.
  std::optional<int32_t> reply_end() const;

  // How the files of a model give the recipe's template to other programs.
  struct Written {
    std::string jinja;  // the template; it reads only variables that Transformers sets
    // The template for tools. With a built-in template: the model's own, if it renders tools and has no other name
    // yet. With a text: the text, if the model has another template for tools. "": none.
    std::string with_tools;
  };
  // Returns how a model that was trained with this template gives it to other programs. `default_system` is the
  // recipe's default_system; it replaces the template's default system text unless it is "". Returns nullopt if this is
  // the model's own template, or if the model's own template renders single-turn conversations to the same text. Also
  // returns nullopt, with a warning, if the written text would not render conversations like this template. The text
  // has no {% generation %} marks, because programs other than Transformers refuse them.
  std::optional<Written> written(const std::string& default_system) const;

  // Return and change the sum of the counts of all calls of render() without `counts`.
  Counts counts() const;
  void add(const Counts& counts) const;

 private:
  struct State;
  // `text` is the recipe's text of a template; "" for the model's own, unless `known` is set.
  static std::shared_ptr<State> make_state(const BuiltInTemplate* known, const std::string& text,
                                           const Tokenizer& tokenizer, const std::optional<LocalTime>& now,
                                           const Thinking& thinking);
  const State& state_for(const Conversation& conversation) const;

  std::shared_ptr<const State> state_;
  std::shared_ptr<const State> with_calls_;  // the model's own template, for conversations with tools; null: use state_
};

}  // namespace fettle
