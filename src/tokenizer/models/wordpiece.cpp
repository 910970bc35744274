#include "tokenizer/models/wordpiece.h"

#include <algorithm>

#include "tokenizer/text/unicode.h"

namespace fettle {

std::unique_ptr<TokenModel> WordPiece::read(const JsonField& field) {
  field.expect_only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  std::unique_ptr<WordPiece> model(new WordPiece(Vocabulary::read(field.at("vocab"))));
  model->prefix_ = field.string_or("continuing_subword_prefix", "##");
  const auto most = field.find("max_input_chars_per_word");
  model->most_chars_ = most ? most->integer() : 100;
  const std::string unk = field.string_or("unk_token", "[UNK]");
  const auto id = model->vocabulary_.id(unk);
  if (!id) field.fail("unk_token '{}' is not in the vocabulary", unk);
  model->unk_id_ = *id;
  for (int32_t i = 0; i < model->vocabulary_.size(); ++i) {
    if (const std::string* token = model->vocabulary_.token(i))
      model->longest_ = std::max(model->longest_, token->size());
  }
  return model;
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  int64_t chars = 0;
  for (size_t at = 0; at < word.size(); ++chars) next_char(word, at);
  const size_t before = ids.size();
  std::string candidate;
  for (size_t start = 0; chars <= most_chars_ && start < word.size();) {
    candidate = start == 0 ? "" : prefix_;
    const size_t head = candidate.size();
    size_t end = std::min(word.size(), start + longest_);
    while (end < word.size() && (static_cast<uint8_t>(word[end]) & 0xC0) == 0x80) --end;
    candidate += word.substr(start, end - start);
    std::optional<int32_t> id;
    while (end > start && !(id = vocabulary_.id(candidate))) {
      previous_char(word, end);
      candidate.resize(head + end - start);
    }
    if (!id) {
      chars = most_chars_ + 1;
      break;
    }
    ids.push_back(*id);
    start = end;
  }
  if (chars <= most_chars_) return;
  ids.resize(before);
  ids.push_back(unk_id_);
}

}  // namespace fettle
