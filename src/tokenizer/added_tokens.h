// Defines AddedTokens: tokens that the tokenizer looks for in the text first, before the model encodes the rest. They
// may be in the model's own vocabulary, too.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/normalizer.h"
#include "tokenizer/pieces.h"

namespace fettle {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only if no word character is directly before or after it
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;       // the match includes the white space after it
  bool normalized = true;    // the token's normalized form is searched for in the normalized text
  bool special = false;      // decoding with skip_special_tokens leaves the token out
};

// Finds the leftmost match of many strings; among matches with the same start, the longest one.
class TokenFinder {
 public:
  void add(std::string_view text, int32_t id);  // when a text is added twice, the first id counts
  bool empty() const { return nodes_.size() == 1; }
  // Returns the length of the longest added text that starts at text[at], and sets id to its id; returns 0 when there
  // is none.
  size_t match(std::string_view text, size_t at, int32_t& id) const;
  // Finds the first match at or after `from` and sets start, end and id. Returns false when there is none.
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
  // Reads one entry of `added_tokens`, or of `added_tokens_decoder`, where the id is the key.
  static AddedToken read(const JsonField& field, int32_t id);
  // Returns such an entry, without the id, for a token that takes no white space and matches within words, too.
  static nlohmann::json entry(const std::string& content, bool special, bool normalized);

  // Adds a token, or replaces the one with the same id. Ignores a token without content.
  void add(AddedToken token);
  // Call this once after the last add(). `normalizer` may be empty.
  void prepare(const Normalizer& normalizer);

  // Both functions cut `pieces` at added tokens. split_given() searches the original text for the tokens whose
  // `normalized` is false. split_normalized() searches the normalized text for the other tokens.
  void split_given(Pieces& pieces) const { split(pieces, given_); }
  void split_normalized(Pieces& pieces) const { split(pieces, normalized_); }

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(const std::string& content) const;
  bool is_special(const std::string& content) const;
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  // Returns the text that decoding writes for the token: its normalized form if it has one, else its content.
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
