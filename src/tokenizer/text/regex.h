// Defines Regex: a pattern in the syntax of Oniguruma, which tokenizer files use. PCRE2 compiles and runs it.
//
// Patterns are rewritten (pattern.h) and compiled with options so that here, as in Oniguruma,
// - \s, \w, \d, \b, \h, POSIX classes and properties follow Oniguruma's Unicode tables;
// - classes nest and intersect;
// - \uXXXX is a code point;
// - ^ and $ are line anchors, and (?m) lets the dot match line ends;
// - a{1,3}+ is (?:a{1,3})+.
// Two differences remain: \X uses PCRE2's grapheme clusters, and with (?i) one character never matches two (ß and ss).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/json_field.h"

namespace fettle {

class Regex {
 public:
  // Throws UserError, which starts with `where`, when the pattern is not valid.
  Regex(std::string_view pattern, std::string_view where);
  // Makes a pattern that matches only `literal`.
  static Regex of_literal(std::string_view literal);
  // Reads {"String": ...} or {"Regex": ...}.
  static Regex of_field(const JsonField& field);

  // Calls visit(start, end, is_match) for the matches in `text` (valid UTF-8) and for the text between them, in order.
  // Throws UserError that names file, field and pattern when a match takes more than 1 GiB of memory, or more than 10
  // million steps plus 16 for each byte of the text.
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

  // Returns the fastest compiled variant that is correct for `text`.
  const Variant& variant_for(std::string_view text) const;
  // Finds the next match in `text` at or after `from`. Skips an empty match at `last_end`, the end of the last match
  // (npos when there was none).
  bool find(const Variant& variant, std::string_view text, size_t from, size_t last_end, size_t& start,
            size_t& end) const;

  std::shared_ptr<const Code> code_;
};

}  // namespace fettle
