// Defines Unigram, which splits a word into the tokens with the largest sum of scores (Kudo 2018, arXiv:1804.10959).
#pragma once

#include <array>

#include "tokenizer/models/model.h"

namespace fettle {

class Unigram : public TokenModel {
 public:
  // Reads a `model` of type Unigram. `vocab` is a list of [token, score]; the position in the list is the id.
  static std::unique_ptr<TokenModel> read(const JsonField& field);
  struct Options {
    // The id that stands for neighbouring unknown characters. Without unk_id, an unknown character causes a UserError.
    std::optional<int32_t> unk_id;
    bool byte_fallback = false;
    bool single_precision = false;  // sums are rounded as in SentencePiece, so that the same split wins a tie
  };
  // `scores` has the score of each id. A token whose score is NaN never matches. `origin` is the file and field of the
  // model, for messages. Throws UserError when unk_id has no token.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, const Options& options, const std::string& origin);

 protected:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // A trie of the bytes of all tokens. The edges of a node are adjacent and sorted by byte.
  struct Edge {
    uint8_t byte;
    int32_t node;
  };
  struct Node {
    int32_t first_edge = 0;
    int32_t edge_count = 0;
    int32_t id = -1;
  };
  void build_trie();
  int32_t child(int32_t node, uint8_t byte) const;

  std::string origin_;
  std::vector<double> scores_;
  Options options_;
  double unk_score_ = 0;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<int32_t, 256> byte_ids_{};  // ids of <0x00>...; -1 when there is none
};

}  // namespace fettle
