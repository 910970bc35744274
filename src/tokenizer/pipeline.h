// Defines Pipeline: the steps from text to ids that a tokenizer file describes. Also declares the readers of such
// files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/json_field.h"
#include "tokenizer/models/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {

struct Pipeline {
  std::unique_ptr<TokenModel> model;
  AddedTokens added;
  Normalizer normalizer;  // `normalizer` and `decoder` may be empty
  // The Precompiled step of `normalizer`, or empty. If this step removes the first characters of a text, the first
  // character that remains counts as the start of the text.
  Normalizer precompiled;
  std::string prefix;          // this text is put before the normalized text
  bool prefix_always = false;  // the prefix is also put after every added token
  bool prefix_alone = false;   // the prefix is also put before a text that became empty by normalizing
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;

  // Call this after reading the file. If the model is a Bpe and may_cut_before() returns true, adds a step that cuts
  // texts into words. Long texts are then encoded faster, and the ids stay the same.
  void cut_into_words();
  std::optional<int32_t> id_of(const std::string& token) const;
  void encode(std::string_view text, bool add_special_tokens, std::vector<int32_t>& ids) const;
  void encode_alone(std::string_view text, std::vector<int32_t>& ids) const;  // skips the post-processor
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
};

// Reads the content of a tokenizer.json of the Hugging Face `tokenizers` library.
Pipeline read_tokenizer_json(const JsonField& file);

// Reads a SentencePiece model (tokenizer.model), BPE or Unigram. For text without added tokens the ids equal those of
// the `sentencepiece` library. Added tokens, including control symbols, are found in the text as in Transformers. The
// dummy prefix (a space) goes at the start of the text; if `legacy` in tokenizer_config.json is true, also after each
// added token. There is none if `add_prefix_space` is false. Fills in the names of special tokens that are empty in
// `config`.
Pipeline read_sentencepiece(const std::filesystem::path& path, TokenizerConfig& config);

// Returns whether the first line of the file consists of base64 and a rank.
bool is_rank_file(const std::filesystem::path& path);

// Reads byte strings and their ranks from tekken.json or from a tiktoken file (Llama 3's tokenizer.model,
// qwen.tiktoken, Kimi's tiktoken.model). Each line of a tiktoken file has a byte string in base64 and its rank. The ids
// are the same as in the models' own programs, which use the `tiktoken` library. Fettle contains the special tokens of
// Llama 3, Llama 4, Qwen and Kimi, and the patterns that cut a text into words. It recognises these four by the number
// of ranks in a tiktoken file. Throws UserError for another number of ranks when config.pattern is empty.
Pipeline read_ranks(const std::filesystem::path& path, TokenizerConfig& config);

// Reads the same files. Returns what a tokenizer.json contains that gives the same ids, without bos and eos.
nlohmann::json tokenizer_json_of_ranks(const std::filesystem::path& path, TokenizerConfig& config);

}  // namespace fettle
