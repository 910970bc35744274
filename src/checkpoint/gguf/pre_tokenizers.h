// Defines pre_tokenizer_of, which returns the method by which a byte-level BPE tokenizer cuts texts into words. GGUF
// files name the method in tokenizer.ggml.pre. Also defines pre_tokenizer_name, which finds the name for a
// tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace fettle {

// The entries of tokenizer.json that depend on the name of the method.
struct NamedPreTokenizer {
  const char* pattern;  // matches a word; null: GPT-2's pattern
  // These patterns divide a text first, one after another. Then `pattern` divides the resulting pieces.
  std::vector<const char*> before = {};
  bool digits_alone = false;  // each digit is a word
  bool composes = false;      // texts are brought into Unicode's form NFC
  bool ignore_merges = false;
  bool adds_bos = false;  // used when tokenizer.ggml.add_bos_token is missing
};

// Returns the method with this name. Throws UserError, which names `file`, when the name is unknown.
const NamedPreTokenizer& pre_tokenizer_of(const std::string& name, const std::string& file);

// Returns llama.cpp's name for the method by which this tokenizer.json (byte-level BPE) cuts texts; "" when none of the
// known names fits.
std::string pre_tokenizer_name(const nlohmann::json& tokenizer);

nlohmann::json normalizer_json(const NamedPreTokenizer& pre);
nlohmann::json pre_tokenizer_json(const NamedPreTokenizer& pre);

}  // namespace fettle
