#include "generate/reply_writer.h"

#include <algorithm>
#include <span>

namespace fettle {

int64_t longest_at_first(const std::vector<int32_t>& prompt, const ReplyOptions& options) {
  constexpr int64_t kMostReserved = 1024;
  return static_cast<int64_t>(prompt.size()) + std::min(options.max_new_tokens, kMostReserved);
}

ReplyWriter::ReplyWriter(const Tokenizer& tokenizer, std::vector<int32_t> prompt, ReplyOptions options,
                         int64_t max_length, OnText on_text)
    : tokenizer_(tokenizer),
      decoder_(tokenizer, false),
      ids_(std::move(prompt)),
      options_(std::move(options)),
      max_length_(max_length),
      on_text_(std::move(on_text)) {
  if (!options_.continues_text) return;
  std::vector<int32_t> before = ids_;
  std::erase_if(before, [&](int32_t id) { return tokenizer_.is_special(id); });
  decoder_.begin_after(before);
}

bool ReplyWriter::take(const std::vector<float>& logits) {
  const TokensBefore before{std::span(ids_).first(ids_.size() - reply_.ids.size()), reply_.ids};
  const int32_t id = sample(logits, options_.sampling, ids_.size(), before);
  if (reply_.prompt_seconds == 0) {
    reply_.prompt_seconds = seconds_since(start_);
    start_ = Clock::now();
  }
  if (std::ranges::find(options_.stop_ids, id) != options_.stop_ids.end()) return false;
  ids_.push_back(id);
  reply_.ids.push_back(id);
  if (!tell(hidden(id) ? "" : decoder_.push(id))) return ends(ReplyEnd::kCaller);
  if (static_cast<int64_t>(reply_.ids.size()) >= options_.max_new_tokens) return ends(ReplyEnd::kMaxNewTokens);
  if (static_cast<int64_t>(ids_.size()) > max_length_) return ends(ReplyEnd::kMaxPositions);
  return true;
}

Reply ReplyWriter::finish() {
  tell(decoder_.finish());
  reply_.reply_seconds = seconds_since(start_);
  return std::move(reply_);
}

bool ReplyWriter::hidden(int32_t id) const {
  return tokenizer_.is_special(id) && std::ranges::find(options_.shown_ids, id) == options_.shown_ids.end();
}

bool ReplyWriter::tell(const std::string& text) {
  reply_.text += text;
  return on_text_(text);
}

bool ReplyWriter::ends(ReplyEnd end) {
  reply_.end = end;
  return false;
}

}  // namespace fettle
