// Defines Tokenizer, which turns text into token ids and back, as the model's own tokenizer files describe.
//
// For the same files the ids equal those of the Hugging Face `tokenizers` library as Transformers configures it.
// Comments in this folder call that library "Hugging Face's library". The settings for truncation and padding in
// tokenizer.json are not used. An added token has the id from the vocabulary, or else the id in its own entry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

class Tokenizer {
 public:
  // Looks for tokenizer.json, tokenizer.model (SentencePiece, or Llama 3's ranks), tekken.json, *.tiktoken, and the
  // files of read_vocabulary_files, in this order, and reads the first file that exists. Also reads
  // tokenizer_config.json, special_tokens_map.json, added_tokens.json and the files of chat templates. Throws
  // UserError, which names the file and its missing, invalid or unsupported part.
  static Tokenizer open(const std::filesystem::path& model_dir);
  // Returns whether the folder has one of these files, also one that open() refuses.
  static bool is_in(const std::filesystem::path& model_dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Returns the ids of `text`. Each maximal invalid sequence of UTF-8 is replaced by one U+FFFD, as in Python's
  // bytes.decode("utf-8", "replace"). Added tokens in the text are recognised. If `add_special_tokens` is true, adds
  // the post-processor's special tokens, such as bos and eos. Several threads may call it at once.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // Encodes one or two texts as one row with the post-processor's special tokens. Cuts the row to `max_length` like
  // Transformers' tokenizer(text, text_pair, truncation=True, max_length=...): the end of the longer text is cut first,
  // and the special tokens stay. Throws UserError when `max_length` leaves no room for text. For two texts, also
  // throws UserError when the post-processor has several templates but none for pairs.
  struct Texts {
    std::vector<int32_t> ids;
    std::vector<uint8_t> types;  // token types; usually 0 for the first text and 1 for the second
    int64_t whole = 0;           // the number of tokens before cutting
  };
  Texts encode_texts(std::string_view first, const std::optional<std::string>& second, int64_t max_length) const;
  // Replaces invalid UTF-8 in the result by U+FFFD, as Hugging Face's library does.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  std::optional<int32_t> token_id(std::string_view token) const;
  std::string token(int32_t id) const;  // the token's string in the vocabulary; empty when there is none
  // Returns the bytes of a token; they may end within a character. A token such as <0xE4> gives this one byte. A token
  // in the byte alphabet gives the bytes for which its characters stand. Any other token gives its own text.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;  // largest id + 1, added tokens included

  // Names from tokenizer_config.json, special_tokens_map.json or the tokenizer's own file, or else from the class that
  // Transformers has for the tokenizer, or else, only eos_token, from config.json. Empty when there is none.
  const std::string& bos_token() const;
  const std::string& eos_token() const;
  const std::string& pad_token() const;
  const std::string& unk_token() const;
  // Returns all tokens with a name, by key: these, cls_token, sep_token, mask_token and others such as image_token.
  std::map<std::string, std::string> named_tokens() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

  // Returns the model's chat template called `name` as Jinja text; nullopt when there is none. The template "default"
  // is chat_template.jinja, or else `chat_template` in tokenizer_config.json, or else that in chat_template.json. Other
  // templates come from additional_chat_templates/ or from a list in tokenizer_config.json.
  std::optional<std::string> chat_template(std::string_view name = "default") const;
  // Replaces all chat templates: Jinja texts by name.
  void set_chat_templates(std::map<std::string, std::string> templates);

  // Returns the files of the model folder that define the tokenizer. Callers copy them into the folder of an adapter or
  // a merged model.
  const std::vector<std::filesystem::path>& files() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fettle
