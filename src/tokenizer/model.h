// Defines Vocabulary and Model: how a piece of text becomes ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"

namespace fettle {

// Tokens by id and ids by token. There may be ids without a token.
class Vocabulary {
 public:
  // Reads an object {token: id}. Throws UserError for an id that is no id or that two tokens have.
  static Vocabulary read(const JsonField& field);

  // False when the id is negative or has a token already.
  bool add(std::string token, int64_t id);
  std::optional<int32_t> id(std::string_view token) const;
  const std::string* token(int32_t id) const;                           // null when there is none
  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }  // largest id + 1

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> by_token_;
  std::vector<const std::string*> by_id_;  // into the keys of by_token_
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of all pieces, in order; a piece with an id appends that. Safe from several threads at once.
  virtual void encode(std::span<const Piece> pieces, std::vector<int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

}  // namespace fettle
