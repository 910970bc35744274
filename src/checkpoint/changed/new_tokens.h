// Defines NewTokens: the tokens that a recipe adds to a model's vocabulary. Also defines add_to_tokenizer, which adds
// them to the tokenizer's files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

struct NewTokens {
  std::vector<std::string> plain;                   // tokens that are not special: replies show them
  std::vector<std::string> special;                 // special tokens: replies leave them out
  std::map<std::string, std::string> descriptions;  // the description of each special token
  bool from_descriptions = false;  // a new token's row starts as the mean of its description's token rows
  bool with_noise = true;          // adds noise to these means
  std::string eos;                 // the tokenizer's new eos_token; empty: no change
  bool resize = false;             // the embedding gets a row for every token of the tokenizer
  uint64_t seed = 42;
  std::string at;  // where the keys were set, for messages

  bool asked() const { return resize || !plain.empty() || !special.empty() || !eos.empty(); }
};

// The result of add_to_tokenizer.
struct GrownTokenizer {
  std::map<std::string, std::string> files;               // changed files by name
  std::map<std::string, int32_t> added;                   // the new tokens and their ids
  std::optional<int32_t> eos;                             // the id of the new eos_token, if it differs from the old one
  int64_t size_before = 0, size = 0;                      // largest id + 1, without and with the new tokens
  std::map<std::string, std::vector<int32_t>> described;  // ids of each new token's description
};

// Returns the tokenizer's files in `model` with the tokens added. Writes no files. New tokens get the next free ids:
// first the plain tokens, then the special tokens, each in the given order. A token that the tokenizer already has
// keeps its id; if it is in `special`, it becomes special. A new eos_token becomes a special token too, and is added if
// the tokenizer lacks it. Throws UserError like Tokenizer::open, and for an empty token.
GrownTokenizer add_to_tokenizer(const std::filesystem::path& model, const NewTokens& tokens);

}  // namespace fettle
