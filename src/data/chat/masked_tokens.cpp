#include "data/chat/masked_tokens.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "tokenizer/stream_decoder.h"

namespace fettle {

std::vector<bool> masked_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string_view text,
                                size_t content, const Message& message) {
  std::vector<size_t> ends;
  StreamDecoder decoder(tokenizer, false);
  std::string decoded;
  for (const int32_t id : ids) {
    decoded += decoder.push(id);
    ends.push_back(decoded.size());
  }
  decoded += decoder.finish();
  if (decoded != text)
    throw UserError(
        "the message has spans to train, but they cannot be found, because the tokenizer changes the text: its "
        "tokens decode to '{}', not to '{}'",
        decoded.substr(0, 80), text.substr(0, 80));
  if (!ends.empty()) ends.back() = decoded.size();
  const size_t content_end = content + message.content.size();
  std::vector<bool> masked;
  size_t begin = 0;
  for (const size_t end : ends) {
    // A token that adds no text (end == begin) has only a part of a character. It counts as the byte at `begin`, where
    // this character begins.
    const size_t last = std::max(end, begin + 1);
    const bool within = begin < content_end && last > content;
    const bool reached = std::any_of(message.spans.begin(), message.spans.end(), [&](const ContentSpan& span) {
      return span.train && begin < content + span.end && last > content + span.begin;
    });
    masked.push_back(within && !reached);
    begin = end;
  }
  return masked;
}

}  // namespace fettle
