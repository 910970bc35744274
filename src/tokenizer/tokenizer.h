// Defines Tokenizer: text to token ids and back, as the model's own tokenizer files say.
//
// Ids equal those of the Hugging Face `tokenizers` library, as Transformers sets it up, for the same files. Truncation
// and padding that tokenizer.json may ask for are not applied: that is the caller's. An added token has the id that
// the vocabulary gives it, else the one written beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

class Tokenizer {
 public:
  // Reads tokenizer.json, else tokenizer.model (SentencePiece, or Llama 3's ranks), tekken.json or *.tiktoken; and
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja beside it.
  // Throws UserError naming the file and what in it is missing, broken or not supported.
  static Tokenizer open(const std::filesystem::path& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Bytes of `text` that are not UTF-8 count as U+FFFD, one for each longest broken sequence, as Python's
  // bytes.decode("utf-8", "replace") has it. Added tokens in the text are recognised. With `add_special_tokens`, the
  // post-processor's bos/eos are added. Safe to call from several threads at once.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // A text or two as one row with the post-processor's special tokens, cut to `max_length` as tokenizer(text,
  // text_pair, truncation=True, max_length=...) of Transformers does it: at the end of the longer text, so that the
  // special tokens stay. Throws UserError when there is no room for them, and for a pair that the post-processor does
  // not know.
  struct Texts {
    std::vector<int32_t> ids;
    std::vector<uint8_t> types;  // token types: 1 where the second text stands, if the tokenizer has them
    int64_t whole = 0;           // tokens before it was cut
  };
  Texts encode_texts(std::string_view first, const std::optional<std::string>& second, int64_t max_length) const;
  // Invalid UTF-8 in the result is replaced by U+FFFD, as the reference does.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_id(std::string_view token) const;
  std::string token(int32_t id) const;  // its spelling in the vocabulary; empty when there is none
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;  // largest id + 1, added tokens included

  // Names from tokenizer_config.json / special_tokens_map.json; empty when there is none.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& unk_token() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

  // The Jinja text of the model's chat template, if any: chat_template.jinja, else `chat_template` of
  // tokenizer_config.json (of a list: the one named `name`, by default "default").
  std::optional<std::string> chat_template(std::string_view name = "default") const;

  // Files of the model folder that make the tokenizer, to be copied beside an adapter or a merged model.
  const std::vector<std::filesystem::path>& files() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Decodes a growing sequence: push() returns the text that is certain so far, never half a character.
// The pieces and what finish() returns, joined, are the text that decode() gives for all ids. One thread at a time;
// `tokenizer` must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  std::string push(int32_t id);
  std::string finish();  // what is left, broken bytes replaced; then a new sequence may begin

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;  // of the last pieces, then those that wait
  size_t context_ = 0;        // how many of ids_ are of the last pieces
  std::string emitted_;       // the text of ids_ that is out already
};

}  // namespace fettle
