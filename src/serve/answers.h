// Defines AnswerWriter, which writes one answer as one JSON object or as the events of a stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/replies/reply_reader.h"
#include "serve/token_chances.h"

namespace fettle {

struct AnswerUsage {
  int64_t prompt_tokens = 0, reply_tokens = 0;
};

// One reply of an answer.
struct AnswerChoice {
  ReplyPart reply;
  std::vector<TokenChance> chances;
  std::string finish_reason;
};

// Writes OpenAI's objects: chat.completion, chat.completion.chunk, text_completion. Broken UTF-8 becomes U+FFFD.
class AnswerWriter {
 public:
  // `chances` says whether the request asks for logprobs. `usage` says whether a stream ends with the numbers of
  // tokens. With `short_ids`, the ids of tool calls have 9 letters and digits. `choices` is the number of replies.
  AnswerWriter(bool chat, std::string model, bool chances, bool usage, bool short_ids = false, size_t choices = 1);

  // Returns one JSON object. Here and in end(), a complete reply with tool calls gets the finish_reason "tool_calls".
  std::string whole(const std::vector<AnswerChoice>& choices, const AnswerUsage& usage);

  // These functions return events of a stream. Each event is "data: JSON" and an empty line. `choice` is the number of
  // a reply. begin() returns "" for text completions. A tool call is never split between two events.
  std::string begin(size_t choice = 0) const;
  std::string piece(const ReplyPart& part, const std::vector<TokenChance>& chances, size_t choice = 0);
  std::string end(const std::string& finish_reason, size_t choice = 0) const;
  // Returns the end of the stream: with `usage`, the numbers of tokens, then [DONE].
  std::string done(const AnswerUsage& usage) const;

 private:
  std::string event(const std::string& choice) const;
  std::string reason(const std::string& finish_reason, size_t choice) const;
  std::string call_id() const;

  bool chat_;
  std::string model_, id_;
  bool chances_, usage_, short_ids_;
  int64_t created_;
  struct Written {
    int64_t offset = 0;  // with logprobs: number of characters in the pieces so far
    int64_t calls = 0;   // number of tool calls so far
  };
  std::vector<Written> written_;  // one for each reply
};

}  // namespace fettle
