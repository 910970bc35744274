// Defines AddedTokens: tokens beside the model's vocabulary that are found in the text before anything else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/normalizer.h"
#include "tokenizer/pieces.h"

namespace fettle {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = true;    // is looked for in the normalized text, itself normalized
  bool special = false;      // is left out when decoding without special tokens
};

// Finds the longest of many strings that starts leftmost.
class TokenFinder {
 public:
  void add(std::string_view text, int32_t id);  // of equal texts the first one holds
  bool empty() const { return nodes_.size() == 1; }
  // The length of the longest one that starts at text[at], 0 for none; sets id.
  size_t match(std::string_view text, size_t at, int32_t& id) const;
  // The first match from `from` on: sets start, end and id. False when there is none.
  bool find(std::string_view text, size_t from, size_t& start, size_t& end, int32_t& id) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // sorted by byte
    int32_t id = -1;
  };
  int32_t child(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

class AddedTokens {
 public:
  // Reads one entry of `added_tokens` (or of `added_tokens_decoder`, where the id is the key).
  static AddedToken read(const JsonField& field, int32_t id);

  // Adds or replaces by id. An empty content is ignored.
  void add(AddedToken token);
  // To be called once after the last add(); `normalizer` may be empty.
  void prepare(const Normalizer& normalizer);

  // Cuts `pieces` at the tokens that are looked for in the text as given, or in the normalized text.
  void split_given(Pieces& pieces) const { split(pieces, given_); }
  void split_normalized(Pieces& pieces) const { split(pieces, normalized_); }

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(const std::string& content) const;
  bool is_special(const std::string& content) const;
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  // The string that stands for the token when decoding: its normalized spelling if it has one.
  const std::string& decoded_spelling(const AddedToken& token) const;

 private:
  void split(Pieces& pieces, const TokenFinder& finder) const;

  std::map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_map<int32_t, std::string> normalized_spelling_;
  TokenFinder given_;
  TokenFinder normalized_;
};

}  // namespace fettle
