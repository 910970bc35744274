// Defines chat messages and ChatTemplate, which turns them into the text, and the spans to train, of one conversation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

struct Message {
  std::string role;                            // system, user, assistant, tool, ...
  std::string content;
  std::string extra_json;                      // other fields of the message (tool_calls, ...) as a JSON object, or ""
  bool train = true;                           // an assistant turn whose row says train: false is masked
};

class ChatTemplate {
 public:
  // `name` is a built-in (llama3, chatml, qwen, mistral, alpaca, ...) or empty for the model's own template.
  // Throws UserError listing the built-ins for an unknown name, or when the model has none.
  ChatTemplate(const std::string& name, const Tokenizer& tokenizer);

  // The prompt for the next assistant turn, as token ids; what `chat`, `generate` and `train` all use.
  std::vector<int32_t> prompt(const std::vector<Message>& messages, const std::string& tools_json = "") const;
  std::string prompt_text(const std::vector<Message>& messages, const std::string& tools_json = "") const;

  struct Piece {
    std::vector<int32_t> ids;
    std::string role;                          // whose turn these tokens are
    bool trained;                              // an assistant turn with its end-of-turn token
  };
  // The whole conversation in pieces whose ids, concatenated, are the training row.
  std::vector<Piece> render(const std::vector<Message>& messages, const std::string& tools_json = "") const;

  // Token ids that end an assistant turn: generation stops at them (eos included).
  const std::vector<int32_t>& stop_ids() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace fettle
