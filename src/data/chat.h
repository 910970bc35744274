// Defines chat messages and ChatTemplate, which turns them into the text, and the spans to train, of one conversation.
//
// What is trained comes from the template: assistant turns with their end-of-turn token, by {% generation %} marks
// where there are any, else as what a conversation has more than the prompt before it. Texts are tokenised without
// special tokens: the template writes bos_token where it wants it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

struct Message {
  std::string role;  // system, user, assistant, tool, ...
  std::string content;
  std::string extra_json;  // other fields of the message (tool_calls, ...) as a JSON object, or ""
  bool train = true;       // an assistant turn whose row says train: false is masked
};

class ChatTemplate {
 public:
  // `name` is a built-in (llama3, chatml, qwen, mistral, alpaca, ...) or empty for the model's own template. Keeps the
  // tokenizer by reference. Throws UserError listing the built-ins for an unknown name, when the model has none, and
  // for a built-in whose end-of-turn token the tokenizer lacks.
  ChatTemplate(const std::string& name, const Tokenizer& tokenizer);

  // The prompt for the next assistant turn, as token ids; what `chat`, `generate` and `train` all use.
  // These and render() throw UserError when the template refuses the messages. Safe from several threads.
  std::vector<int32_t> prompt(const std::vector<Message>& messages, const std::string& tools_json = "") const;
  std::string prompt_text(const std::vector<Message>& messages, const std::string& tools_json = "") const;
  // The conversation as it is, without a prompt for another turn.
  std::string text(const std::vector<Message>& messages, const std::string& tools_json = "") const;

  struct Piece {
    std::vector<int32_t> ids;
    std::string role;  // whose turn these tokens are; as far as they can be told apart, else the role that spoke last
    bool trained;      // an assistant turn with its end-of-turn token
  };
  // The whole conversation in pieces whose ids, concatenated, are the training row. The ids before a trained turn are
  // those of the prompt at that point; throws UserError showing both texts when the last turn's prompt is not how the
  // training text begins.
  std::vector<Piece> render(const std::vector<Message>& messages, const std::string& tools_json = "") const;

  // Token ids that end an assistant turn: generation stops at them (eos included).
  const std::vector<int32_t>& stop_ids() const;

  // What render() met so far, in turns; worth a line in a report when not zero.
  struct Counts {
    int64_t rewritten = 0;      // earlier turns that the template shows in another way than when they were the last
    int64_t prompt_thinks = 0;  // prompts that open a thinking block which the training text lacks
    int64_t without_end = 0;    // trained turns that end without an end-of-turn token
  };
  Counts counts() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace fettle
