#include "tokenizer/stream_decoder.h"

#include <algorithm>

#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

// No character consists of this many tokens. Bytes that are still incomplete after so many tokens are invalid UTF-8.
constexpr size_t kMostWaiting = 32;

// Returns the last of `ids`, such that their text has no incomplete character; empty if there are none.
std::span<const int32_t> whole_end(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special_tokens) {
  constexpr size_t kFewest = 4;
  for (size_t count = std::min(kFewest, ids.size()); count <= std::min(kMostWaiting, ids.size()); ++count)
    if (tokenizer.decode(ids.last(count), skip_special_tokens).find(kReplacementText) == std::string::npos)
      return ids.last(count);
  return {};
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

void StreamDecoder::begin_after(std::span<const int32_t> before) {
  const std::span<const int32_t> end = whole_end(tokenizer_, before, skip_special_tokens_);
  ids_.assign(end.begin(), end.end());
  emitted_ = tokenizer_.decode(ids_, skip_special_tokens_);
  context_ = ids_.size();
}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
  if (!text.starts_with(emitted_) && (!text.ends_with(kReplacementText) || ids_.size() - context_ >= kMostWaiting)) {
    drop_context();
    text = tokenizer_.decode(ids_, skip_special_tokens_);
  }
  if (text.size() <= emitted_.size() || !text.starts_with(emitted_)) return "";
  if (text.ends_with(kReplacementText)) {
    if (ids_.size() - context_ < kMostWaiting) return "";
    text.resize(text.size() - kReplacementText.size());
    if (text.size() <= emitted_.size()) return "";
    std::string piece = text.substr(emitted_.size());
    emitted_ = std::move(text);
    return piece;
  }
  std::string piece = text.substr(emitted_.size());
  // The tokens of this piece stay as context for the next piece, because some decoders treat the spaces of a text's
  // first tokens differently. A piece of only spaces is not enough context, so the earlier context stays, too.
  std::string context = tokenizer_.decode(std::span(ids_).subspan(context_), skip_special_tokens_);
  if (context.find_first_not_of(' ') != std::string::npos) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
    emitted_ = std::move(context);
  } else {
    emitted_ = std::move(text);
  }
  context_ = ids_.size();
  return piece;
}

std::string StreamDecoder::finish() {
  std::string text = tokenizer_.decode(ids_, skip_special_tokens_);
  if (!text.starts_with(emitted_)) {
    drop_context();
    text = tokenizer_.decode(ids_, skip_special_tokens_);
  }
  std::string rest = text.substr(emitted_.size());
  ids_.clear();
  context_ = 0;
  emitted_.clear();
  return rest;
}

void StreamDecoder::drop_context() {
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = 0;
  emitted_.clear();
}

}  // namespace fettle
