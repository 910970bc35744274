#include "generate/replies/shown_reply.h"

#include <utility>

namespace fettle {

ShownReply::ShownReply(const ReplyForm& form, const Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  if (!form.plain()) reader_ = make_reply_reader(form, "", text_at_end(tokenizer, prompt));
}

std::string ShownReply::push(const std::string& text) {
  return shown(reader_ ? reader_->push(text) : ReplyPart{.content = text, .reasoning = "", .calls = {}});
}

std::string ShownReply::finish() {
  std::string out = reader_ ? shown(reader_->finish()) : "";
  return std::exchange(in_thought_, false) ? out + "\n</think>" : out;
}

std::string ShownReply::shown(const ReplyPart& part) {
  std::string out;
  if (!part.reasoning.empty()) {
    if (!std::exchange(in_thought_, true)) out += parts_.empty() ? "<think>\n" : "\n\n<think>\n";
    out += part.reasoning;
  }
  if (!part.content.empty()) {
    if (std::exchange(in_thought_, false)) out += "\n</think>\n\n";
    out += part.content;
  }
  parts_.add(part);
  return out;
}

}  // namespace fettle
