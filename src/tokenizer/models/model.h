// Defines Vocabulary and TokenModel, which turn a piece of text into ids.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"

namespace fettle {

// Finds tokens by id and ids by token. Some ids may have no token.
class Vocabulary {
 public:
  // Reads an object {token: id}. Throws UserError for an invalid id, and for an id that two tokens have.
  static Vocabulary read(const JsonField& field);

  // Adds a token. If a token is added twice with different ids, id() returns the last one. Returns false when the id is
  // not valid or already has a token.
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
  std::vector<const std::string*> by_id_;  // point to the keys of by_token_
};

// A direct-mapped cache of words and their ids. Long words and words with many ids are not stored.
class WordCache {
 public:
  // When `word` is in the cache, appends its ids and returns true.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  void put(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kWordMost = 31;
  static constexpr size_t kIdsMost = 7;
  static constexpr size_t kSlots = 1 << 16;
  struct Slot {
    uint8_t length = 0;
    uint8_t count = 0;
    char word[kWordMost];
    int32_t ids[kIdsMost];
  };
  static size_t slot_of(std::string_view word) { return std::hash<std::string_view>()(word) % kSlots; }

  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of all pieces, in order. If a piece has an id already, appends that id. Several threads may call it
  // at once.
  void encode(std::span<const Piece> pieces, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  // Appends the ids of one word. The word is not empty.
  virtual void encode_word(std::string_view word, std::vector<int32_t>& ids) const = 0;

  Vocabulary vocabulary_;

 private:
  // Each call of encode() takes a free cache, or makes one, and puts it back at the end.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> free_caches_;
};

}  // namespace fettle
