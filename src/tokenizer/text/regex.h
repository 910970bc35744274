// Defines Regex: a pattern in Oniguruma's syntax, as tokenizer files write it, run by PCRE2's JIT.
//
// What differs between the two is rewritten (pattern.h): \s, \w, \d, \b, \h, POSIX classes and properties mean what
// Oniguruma's Unicode tables say, classes nest and intersect, \uXXXX is a code point, ^ and $ are line anchors, (?m)
// lets the dot match line ends. Not rewritten: a{1,3}+ is possessive here, \X has the linked PCRE2's grapheme clusters,
// and without regard to case a character still equals one character (not ß two).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/json_field.h"

namespace fettle {

class Regex {
 public:
  // Throws UserError naming `where` when the pattern is not valid.
  Regex(std::string_view pattern, std::string_view where);
  // The pattern that matches `literal` and nothing else.
  static Regex of_literal(std::string_view literal);
  // Reads {"String": ...} or {"Regex": ...}.
  static Regex of_field(const JsonField& field);

  // Calls visit(start, end, is_match) for stretches that cover all of `text` (valid UTF-8) in order. Throws UserError
  // naming file, field and pattern when a match takes too many steps (10 million, and 16 more for each byte).
  template <typename Visit>
  void cover(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    size_t start = 0, end = 0, covered = 0, last_end = std::string_view::npos;
    const Variant& variant = variant_for(text);
    while (find(variant, text, covered, last_end, start, end)) {
      if (start != covered) visit(covered, start, false);
      visit(start, end, true);
      covered = last_end = end;
    }
    if (covered != text.size()) visit(covered, text.size(), false);
  }

 private:
  struct Code;
  struct Variant;

  // The compiled pattern that serves `text` fastest.
  const Variant& variant_for(std::string_view text) const;
  // Finds the next match in `text` from `from` on. An empty match right after the last match (at `last_end`, or npos
  // for none) is skipped.
  bool find(const Variant& variant, std::string_view text, size_t from, size_t last_end, size_t& start,
            size_t& end) const;

  std::shared_ptr<const Code> code_;
};

}  // namespace fettle
