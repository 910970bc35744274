// Defines write_reply, which draws the tokens after a prompt one by one and passes their text on as it is drawn.
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
  std::vector<int32_t> stop_ids;  // end the reply and are not part of it
};

enum class ReplyEnd { kStopToken, kMaxNewTokens, kMaxPositions, kCaller };

struct Reply {
  std::vector<int32_t> ids;
  std::string text;  // without special tokens
  ReplyEnd end = ReplyEnd::kStopToken;
};

// Gets the text of each token. The text may be empty and never ends within a character. Returning false ends the reply.
using OnText = std::function<bool(const std::string& text)>;

// A draw depends only on the seed and the token's position, so the same prompt gets the same reply. Throws what
// Generator::logits throws.
Reply write_reply(Generator& generator, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                  const ReplyOptions& options, const OnText& on_text);

}  // namespace fettle
