// Defines AnswerWriter, which writes one answer as one JSON object or as the events of a stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/reply_reader.h"
#include "serve/token_chances.h"

namespace fettle {

struct AnswerUsage {
  int64_t prompt_tokens = 0, reply_tokens = 0;
};

// Writes OpenAI's objects: chat.completion, chat.completion.chunk, text_completion. Broken UTF-8 becomes U+FFFD.
class AnswerWriter {
 public:
  // `chances` says whether the request asks for logprobs. `usage` says whether a stream ends with the numbers of
  // tokens. With `short_ids`, the ids of tool calls have 9 letters and digits.
  AnswerWriter(bool chat, std::string model, bool chances, bool usage, bool short_ids = false);

  // Returns one JSON object. Here and in end(), a complete reply with tool calls gets the finish_reason "tool_calls".
  std::string whole(const ReplyPart& reply, const std::vector<TokenChance>& chances, const std::string& finish_reason,
                    const AnswerUsage& usage);

  // These functions return events of a stream. Each event is "data: JSON" and an empty line. begin() returns "" for
  // text completions. A tool call is never split between two events.
  std::string begin() const;
  std::string piece(const ReplyPart& part, const std::vector<TokenChance>& chances);
  std::string end(const std::string& finish_reason, const AnswerUsage& usage) const;  // with [DONE]

 private:
  std::string event(const std::string& choice) const;
  std::string reason(const std::string& finish_reason) const;
  std::string call_id() const;

  bool chat_;
  std::string model_, id_;
  bool chances_, usage_, short_ids_;
  int64_t created_;
  int64_t offset_ = 0;  // with logprobs: number of characters in the pieces so far
  int64_t calls_ = 0;   // number of tool calls so far
};

}  // namespace fettle
