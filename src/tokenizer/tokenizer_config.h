// Defines TokenizerConfig: the special tokens and chat templates, which are in other files than tokenizer.json.
//
// TokenizerConfig reads tokenizer_config.json and special_tokens_map.json as Transformers 4 and 5 write them (a token
// is a string or {"content": ...}), added_tokens.json, chat_template.jinja, chat_template.json and
// additional_chat_templates/NAME.jinja.
// Each of these files may be missing.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace fettle {

struct TokenizerConfig {
  // Empty when there is no such token.
  std::string bos_token, eos_token, pad_token, unk_token, cls_token, sep_token, mask_token;
  std::map<std::string, std::string> model_tokens;  // tokens with other names, such as image_token
  std::set<std::string> null_tokens;                // the keys of the first seven members that are null in a file
  std::set<std::string> empty_tokens;               // the keys of the first seven members that are "" in a file
  std::vector<std::string> special_tokens;  // the tokens above, and all other special tokens that the files name
  std::vector<AddedToken> added_tokens;     // from added_tokens_decoder, or else from added_tokens.json
  std::string tokenizer_class;
  std::string pattern;  // pat_str: the pattern that cuts texts into words, for rank files that Fettle does not know
  std::optional<bool> legacy;  // if true, the dummy prefix (a space) is also put after each added token
  std::optional<bool> add_prefix_space;
  // The fields of a BertNormalizer that do_lower_case, strip_accents and tokenize_chinese_chars set. Only the keys that
  // tokenizer_config.json has are in this object; strip_accents may be null.
  nlohmann::json bert_normalizer = nlohmann::json::object();
  // If set, these decide instead of the post-processor whether texts start with bos and end with eos. With a
  // tokenizer.json, they do so only for some classes (Tokenizer::open).
  std::optional<bool> add_bos_token, add_eos_token;
  std::map<std::string, std::string> chat_templates;  // templates by name; the usual name is "default"
  std::vector<std::filesystem::path> files;           // the files that read() found and read

  static TokenizerConfig read(const std::filesystem::path& model_dir);

  // The seven names that every tokenizer of Transformers may give to a token.
  struct Name {
    const char* key;
    std::string TokenizerConfig::*token;
  };
  static const std::array<Name, 7>& names();
  // Returns all tokens that have a name, by key. Transformers gives them to chat templates.
  std::map<std::string, std::string> named_tokens() const;
  // Adds a token to special_tokens, unless it is there or empty.
  void add_special(std::string token);
};

}  // namespace fettle
