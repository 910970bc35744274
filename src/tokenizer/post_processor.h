// Defines PostProcessor, which adds special tokens around the ids of a text.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/models/model.h"

namespace fettle {

class PostProcessor {
 public:
  // Reads `post_processor` from tokenizer.json. Throws UserError, which lists the known types, when the type is
  // unknown.
  static PostProcessor read(const JsonField& field);
  // Makes a post-processor that puts `before` and `after` around the text.
  static PostProcessor around(std::vector<int32_t> before, std::vector<int32_t> after);

  // Returns the special tokens before and after a text.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> ids_around() const;

  // Applies the templates to the ids of one text. If `add_special_tokens` is false, adds no special tokens, but
  // still repeats the text if a template contains it several times.
  void apply(std::vector<int32_t>& ids, bool add_special_tokens) const;

  // A part of a row with two texts: a special token, or one of the texts.
  struct PairPiece {
    enum class Kind : uint8_t { kToken, kFirst, kSecond };
    Kind kind = Kind::kToken;
    int32_t id = 0;    // the special token of kToken
    uint8_t type = 0;  // the token type of the whole part
  };
  // Returns the parts of a row of two texts. Without a template, they are the first text with type 0, then the second
  // text with type 1. Throws UserError when there are several templates.
  std::vector<PairPiece> pair() const;

 private:
  // Most templates contain the text once, but a template may contain several copies of it. between[i] has the ids of
  // the special tokens before copy i. The last element has the ids after the last copy.
  struct Template {
    std::vector<std::vector<int32_t>> between;
    std::vector<PairPiece> pair;
  };
  static std::vector<Template> read_templates(const JsonField& field);

  std::vector<Template> templates_;  // these templates are applied in order
};

}  // namespace fettle
