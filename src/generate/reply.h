// Defines write_reply: tokens after a prompt, drawn one by one and told as text while they come.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "generate/decode.h"
#include "generate/sample.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct ReplyOptions {
  int64_t max_new_tokens = 512;
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;  // end the reply; not part of it
};

enum class ReplyEnd { kStopToken, kMaxNewTokens, kMaxPositions, kCaller };

struct Reply {
  std::vector<int32_t> ids;
  std::string text;  // without special tokens
  ReplyEnd end = ReplyEnd::kStopToken;
};

// Told the text of each token, which may be empty: never half a character. False ends the reply.
using OnText = std::function<bool(const std::string& text)>;

// The draw of a token depends on the seed and its position, so the same prompt gets the same reply. Throws what
// Generator::logits throws.
Reply write_reply(Generator& generator, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                  const ReplyOptions& options, const OnText& on_text);

}  // namespace fettle
