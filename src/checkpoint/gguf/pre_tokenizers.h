// Defines pre_tokenizer_of: how byte-level BPE cuts texts into words, by the name in tokenizer.ggml.pre, and the name
// of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fettle {

// The entries of tokenizer.json that depend on the name.
struct NamedPreTokenizer {
  const char* pattern;        // of words; null: GPT-2's
  bool digits_alone = false;  // each digit is a word
  bool composes = false;      // texts are brought into Unicode's form NFC
  bool ignore_merges = false;
  bool adds_bos = false;  // where tokenizer.ggml.add_bos_token is missing
};

// Throws UserError that names `file` when the name is unknown.
const NamedPreTokenizer& pre_tokenizer_of(const std::string& name, const std::string& file);

// Returns the name that llama.cpp has for the words of this tokenizer.json (byte-level BPE); "" when it has none.
std::string pre_tokenizer_name(const nlohmann::json& tokenizer);

nlohmann::json normalizer_json(const NamedPreTokenizer& pre);
nlohmann::json pre_tokenizer_json(const NamedPreTokenizer& pre);

}  // namespace fettle
