// Defines Tokenizer: text to token ids and back, as the model's own tokenizer files say.
//
// Ids equal those of the Hugging Face `tokenizers` library for the same files.
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
  // Reads tokenizer.json (and tokenizer_config.json, special_tokens_map.json, chat_template.jinja beside it).
  // Throws UserError naming the file and what in it is missing, broken or not supported.
  static Tokenizer open(const std::filesystem::path& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Added tokens in the text are recognised. With `add_special_tokens`, the post-processor's bos/eos are added.
  // Safe to call from several threads at once.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Invalid UTF-8 in the result is replaced by U+FFFD, as the reference does.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_id(std::string_view token) const;
  std::string token(int32_t id) const;          // its spelling in the vocabulary; empty when there is none
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;                   // largest id + 1, added tokens included

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
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  std::string push(int32_t id);
  std::string finish();                         // what is left, broken bytes replaced

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;
  size_t emitted_from_ = 0;                     // first id that still matters for the next piece
  std::string emitted_;
};

}  // namespace fettle
