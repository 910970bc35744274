// Defines StreamDecoder, which turns ids into text as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

// Decodes ids one by one. push() returns new text that further ids cannot change. The text never ends inside a
// character. The texts that push() returns, followed by the text of finish(), equal decode() of all ids, unless a
// broken byte follows text that push() has returned and decode() would replace this text, too. Only one thread at a
// time may use a StreamDecoder. `tokenizer` must outlive the StreamDecoder.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  // Makes the next texts those that follow the text of `before`. Call it before the first push(). Without it, some
  // decoders drop the space at the beginning of the first token.
  void begin_after(std::span<const int32_t> before);
  std::string push(int32_t id);
  std::string finish();  // returns the remaining text, with broken bytes replaced; a new sequence may follow

 private:
  // Call it when the text of all ids no longer begins with the text that push() has returned. When a broken byte
  // follows valid bytes, a decoder may replace the valid bytes, too.
  void drop_context();

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;  // the context (ids whose text push() has returned), then newer ids
  size_t context_ = 0;        // the number of ids in the context
  std::string emitted_;       // text that push() has returned; decode() of ids_ begins with it
};

}  // namespace fettle
