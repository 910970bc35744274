// Defines Unigram: the tokens of a word are those whose scores have the largest sum (Kudo 2018, arXiv:1804.10959).
#pragma once

#include <array>

#include "tokenizer/models/model.h"

namespace fettle {

class Unigram : public TokenModel {
 public:
  // Reads a `model` of type Unigram: `vocab` lists [token, score], the place in it is the id.
  static std::unique_ptr<TokenModel> read(const JsonField& field);
  struct Options {
    std::optional<int32_t> unk_id;  // of characters that no token has, a run of them at once; without it they are an
                                    // error of the text's
    bool byte_fallback = false;
    bool single_precision = false;  // sums are rounded as SentencePiece itself does; it decides between equal ways
  };
  // `scores` by id; not a number: the token is never found in text. Throws UserError naming `origin` when unk_id has
  // no token.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, const Options& options, const std::string& origin);

 protected:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // A trie over the bytes of all tokens. The edges of a node are next to each other, sorted by byte.
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

  std::vector<double> scores_;
  Options options_;
  double unk_score_ = 0;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<int32_t, 256> byte_ids_{};  // of <0x00>...; -1 when there is none
};

}  // namespace fettle
