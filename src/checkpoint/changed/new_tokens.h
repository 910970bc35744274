// Defines NewTokens, which a recipe adds to a model's vocabulary, and add_to_tokenizer, which adds them to its
// tokenizer's files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace fettle {

struct NewTokens {
  std::vector<std::string> plain;                   // found in the text like words
  std::vector<std::string> special;                 // left out of replies
  std::map<std::string, std::string> descriptions;  // of special tokens
  bool from_descriptions = false;                   // rows start as the mean of the description's tokens
  bool with_noise = true;                           // and get noise
  bool resize = false;                              // the embedding has a row for every token of the tokenizer
  uint64_t seed = 42;
  std::string at;  // where the keys were set, for messages

  bool asked() const { return resize || !plain.empty() || !special.empty(); }
};

// What the tokenizer's files become.
struct GrownTokenizer {
  std::map<std::string, std::string> files;               // changed files by name
  std::map<std::string, int32_t> added;                   // the new tokens and their ids
  int64_t size_before = 0, size = 0;                      // the largest id + 1
  std::map<std::string, std::vector<int32_t>> described;  // ids of each new token's description
};

// Returns the files of the tokenizer in `model` with the new tokens behind all others, in the order in which they are
// given, the plain ones first. Tokens that it has already stay; special ones become special. Throws UserError as
// Tokenizer::open, and for an empty token.
GrownTokenizer add_to_tokenizer(const std::filesystem::path& model, const NewTokens& tokens);

}  // namespace fettle
