// Defines CompletionRequest, which is read from the body of a request to /v1/chat/completions or /v1/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"
#include "generate/reply.h"

namespace fettle {

// The exception for a request that is answered with an error. The text names the field and the remedy.
class RequestError : public std::runtime_error {
 public:
  RequestError(int status, const std::string& text, std::string field = "", std::string code = "")
      : std::runtime_error(text), status(status), field(std::move(field)), code(std::move(code)) {}

  int status;  // HTTP status
  std::string field, code;
  std::string json() const;  // in OpenAI's form: {"error": {"message", "type", "param", "code"}}
};

// A prompt of /v1/completions.
struct TextPrompt {
  std::string text;  // unless `ids` has it
  std::vector<int32_t> ids = {};
};

// The values of a request. An optional field has no value if the request leaves it out or sets it to null.
struct CompletionRequest {
  bool chat = true;
  std::string model;
  Conversation conversation;        // chat
  std::vector<TextPrompt> prompts;  // completions: at least one
  std::optional<int64_t> max_tokens, top_k;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  int64_t replies = 1;  // `n`: to each prompt
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
  // Number of likely tokens to report at each position; 0: only the drawn token; nullopt: the reply has no logprobs.
  std::optional<int> top_logprobs;

  // Returns `defaults`, changed by the values that the request sets. With a seed, replies with different values of
  // `number` get different random numbers.
  ReplyOptions options(ReplyOptions defaults, uint64_t number = 0) const;
};

// Reads the body of a request. Throws RequestError for broken JSON, for an unknown field, for a wrong value, and for a
// field whose feature this server does not support.
CompletionRequest read_chat_request(std::string_view body);
CompletionRequest read_text_request(std::string_view body);

}  // namespace fettle
