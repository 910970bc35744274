// Defines TokenizerConfig: what the files beside tokenizer.json say of special tokens and chat templates.
//
// Read are tokenizer_config.json and special_tokens_map.json as Transformers 4 and 5 write them (a token is a string
// or {"content": ...}), added_tokens.json, chat_template.jinja and additional_chat_templates/NAME.jinja. Any of them
// may be missing.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace fettle {

struct TokenizerConfig {
  std::string bos_token;  // empty when there is none, as the others
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::vector<std::string> special_tokens;  // these and all others that are named
  std::vector<AddedToken> added_tokens;     // of added_tokens_decoder
  std::string tokenizer_class;
  std::string pattern;                // pat_str: how ranks of a kind that is not known cut a text into words
  std::optional<bool> legacy;         // of Llama's tokenizers: a space after added tokens too
  std::optional<bool> add_bos_token;  // set: they decide instead of the post-processor
  std::optional<bool> add_eos_token;
  std::map<std::string, std::string> chat_templates;  // by name; "default" is the usual one
  std::vector<std::filesystem::path> files;           // those that were there

  static TokenizerConfig read(const std::filesystem::path& model_dir);
};

}  // namespace fettle
