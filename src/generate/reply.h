// Defines write_reply and write_replies, which draw the tokens after prompts one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "generate/decode.h"
#include "generate/sample.h"
#include "step/open_model.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

struct ReplyOptions {
  int64_t max_new_tokens = 512;
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;        // a reply ends before such a token
  std::vector<int32_t> shown_ids = {};  // special tokens that are a part of the reply's text
  // true: the text continues the prompt's text, so it begins with the space of its first token. false: it is a text of
  // its own; some tokenizers drop this space.
  bool continues_text = false;
};

enum class ReplyEnd { kStopToken, kMaxNewTokens, kMaxPositions, kCaller };

struct Reply {
  std::vector<int32_t> ids;
  std::string text;  // without special tokens, except ReplyOptions::shown_ids
  ReplyEnd end = ReplyEnd::kStopToken;
  double prompt_seconds = 0;  // from the start to the first token
  double reply_seconds = 0;   // from the first token to the last
};

// Receives the text of each token. The text may be empty and never ends within a character. Returning false ends the
// reply.
using OnText = std::function<bool(const std::string& text)>;

// Writes one reply. A random draw depends only on the seed and the token's position, so the same prompt and seed give
// the same reply. Throws the same errors as Generator::logits.
Reply write_reply(Generator& generator, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                  const ReplyOptions& options, const OnText& on_text);

// Receives each reply when it has ended, with the number of its prompt. Replies may end in any order.
using OnReply = std::function<void(size_t number, Reply reply)>;

// Writes the replies to all prompts. The run's eval_rows_per_device says how many replies are written at once. When a
// reply has ended, the next prompt begins. `options_of` returns the options for a prompt's number. A reply does not
// depend on the other prompts, but the logits of a batch are rounded differently from those of one prompt. Throws the
// same errors as Generator::logits.
void write_replies(Devices& devices, OpenModel& model, const Tokenizer& tokenizer,
                   const std::vector<std::vector<int32_t>>& prompts,
                   const std::function<ReplyOptions(size_t number)>& options_of, const OnReply& on_reply);

}  // namespace fettle
