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

 private:
  // The special ids that come before each copy of the text and after the last; a template has one copy as a rule.
  struct Template {
    std::vector<std::vector<int32_t>> between;
  };
  static std::vector<Template> read_templates(const JsonField& field);

  std::vector<Template> templates_;  // applied in order
};

}  // namespace fettle
