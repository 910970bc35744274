// Defines ShownReply, the text of a reply in the form in which `chat` and `generate` print it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generate/replies/reply_reader.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// A reply whose model thinks becomes "<think>\nTHOUGHT\n</think>\n\nCONTENT", whatever tokens the model writes around
// its thought. A reply without a thought becomes its content.
class ShownReply {
 public:
  ShownReply(const ReplyForm& form, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt);

  // push() adds text of the reply, and returns the text that can be printed now. Call finish() when no more text
  // follows; it returns the rest.
  std::string push(const std::string& text);
  std::string finish();

  // Returns the parts of the reply so far.
  const ReplyPart& parts() const { return parts_; }

 private:
  std::string shown(const ReplyPart& part);

  std::unique_ptr<ReplyReader> reader_;  // null: the whole text is content
  ReplyPart parts_;
  bool in_thought_ = false;
};

}  // namespace fettle
