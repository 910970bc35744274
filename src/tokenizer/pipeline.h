// Defines Pipeline: the steps between text and ids that a tokenizer file describes, and its readers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/models/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {

struct Pipeline {
  std::unique_ptr<TokenModel> model;
  AddedTokens added;
  Normalizer normalizer;       // empty: none, as the decoder
  Normalizer precompiled;      // that part of it: the text begins with the first character that it does not remove
  std::string prefix;          // put before the normalized text,
  bool prefix_always = false;  // after every added token too
  bool prefix_alone = false;   // also before a text of which nothing is left
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;

  // To be called once all is read: lets long texts without a pre-tokenizer be cut into words where that changes
  // nothing.
  void cut_into_words();
  std::optional<int32_t> id_of(const std::string& token) const;
  void encode(std::string_view text, bool add_special_tokens, std::vector<int32_t>& ids) const;
  void encode_alone(std::string_view text, std::vector<int32_t>& ids) const;  // without the post-processor
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
};

// tokenizer.json of the Hugging Face `tokenizers` library.
Pipeline read_tokenizer_json(const std::filesystem::path& path);

// A SentencePiece model (tokenizer.model), BPE or Unigram. Ids equal those of the `sentencepiece` library for text
// without added tokens; those are found in the text, control symbols among them, as Transformers does it: the dummy
// prefix stands only at the start of the text, unless `legacy` of tokenizer_config.json is true. Sets the names of
// special tokens that `config` leaves open.
Pipeline read_sentencepiece(const std::filesystem::path& path, TokenizerConfig& config);

// Whether the file begins as lines of base64 and rank do.
bool is_rank_file(const std::filesystem::path& path);

// Ranks of byte strings: lines of base64 and rank (tiktoken: Llama 3's tokenizer.model, qwen.tiktoken), or
// tekken.json. Ids equal those of the `tiktoken` library, as the models' own programs use it. How a text is cut, and
// the special tokens that `config` does not name, are known for Llama 3, Llama 4 and Qwen by the number of ranks.
// Throws UserError for ranks of another number without config.pattern.
Pipeline read_ranks(const std::filesystem::path& path, TokenizerConfig& config);

}  // namespace fettle
