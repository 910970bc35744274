// Defines ReplyWriter, which draws the tokens of one reply and stores the reply so far.
#pragma once

#include <cstdint>
#include <vector>

#include "base/seconds_since.h"
#include "generate/reply.h"
#include "tokenizer/stream_decoder.h"

namespace fettle {

// Returns how many positions the cache reserves at the start for a prompt and its reply.
int64_t longest_at_first(const std::vector<int32_t>& prompt, const ReplyOptions& options);

// Draws one token after another from logits that the caller computes. `tokenizer` must outlive the ReplyWriter.
class ReplyWriter {
 public:
  // `max_length` is the largest number of tokens that the model takes.
  ReplyWriter(const Tokenizer& tokenizer, std::vector<int32_t> prompt, ReplyOptions options, int64_t max_length,
              OnText on_text);

  const std::vector<int32_t>& ids() const { return ids_; }  // the prompt, and the reply so far

  // Draws the next token from the logits. Returns false when the reply has ended. Throws the same errors as sample().
  bool take(const std::vector<float>& logits);
  // Returns the reply. Call it once, at the end.
  Reply finish();

 private:
  bool tell(const std::string& text);
  bool hidden(int32_t id) const;
  bool ends(ReplyEnd end);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  std::vector<int32_t> ids_;
  ReplyOptions options_;
  int64_t max_length_;
  OnText on_text_;
  Reply reply_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace fettle
