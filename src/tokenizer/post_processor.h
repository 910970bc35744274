// Defines PostProcessor: the special tokens that are put around the ids of a text.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/models/model.h"

namespace fettle {

class PostProcessor {
 public:
  // Reads the `post_processor` of tokenizer.json. Throws UserError for a type that is not known, with those that are.
  static PostProcessor read(const JsonField& field);
  // Puts `before` and `after` around the text.
  static PostProcessor around(std::vector<int32_t> before, std::vector<int32_t> after);

  // What stands before and after a text with special tokens.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> ids_around() const;

  void apply(std::vector<int32_t>& ids, bool add_special_tokens) const;

  // What stands in a row of two texts: a special token, or one of the texts.
  struct PairPiece {
    enum class Kind : uint8_t { kToken, kFirst, kSecond };
    Kind kind = Kind::kToken;
    int32_t id = 0;    // kToken
    uint8_t type = 0;  // the token type of all of it
  };
  // Without a template the texts stand one behind the other, of types 0 and 1. Throws UserError when there are several.
  std::vector<PairPiece> pair() const;

 private:
  // The special ids that come before each copy of the text and after the last; a template has one copy as a rule.
  struct Template {
    std::vector<std::vector<int32_t>> between;
    std::vector<PairPiece> pair;
  };
  static std::vector<Template> read_templates(const JsonField& field);

  std::vector<Template> templates_;  // applied in order
};

}  // namespace fettle
