// Defines WordPiece: a word is the longest token of the vocabulary that begins it, then the longest that goes on
// (Schuster and Nakajima 2012; as BERT has it).
#pragma once

#include "tokenizer/models/model.h"

namespace fettle {

class WordPiece : public TokenModel {
 public:
  // Reads a `model` of type WordPiece. Throws UserError when its unk_token is not in the vocabulary.
  static std::unique_ptr<TokenModel> read(const JsonField& field);

 protected:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  using TokenModel::TokenModel;

  std::string prefix_;      // of tokens that do not begin a word
  int64_t most_chars_ = 0;  // a longer word is unknown
  size_t longest_ = 0;      // bytes of the longest token
  int32_t unk_id_ = 0;
};

}  // namespace fettle
