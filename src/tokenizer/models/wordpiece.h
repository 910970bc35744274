// Defines WordPiece, which repeatedly takes the longest token at the start of the remaining word (Schuster and Nakajima
// 2012, as in BERT).
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

  std::string prefix_;      // prefix of tokens that are not at the start of a word
  int64_t most_chars_ = 0;  // a word with more characters is unknown
  size_t longest_ = 0;      // bytes of the longest token
  int32_t unk_id_ = 0;
};

}  // namespace fettle
