// Defines Pattern: a regular expression that Fettle itself contains, in PCRE2's syntax, for names, fields and files.
// Texts may have any length. Patterns that users give go through tokenizer/text/regex.h instead, which bounds their
// time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

class Pattern {
 public:
  // A match's groups; the whole match comes first. A group that did not match is empty.
  using Groups = std::vector<std::string>;

  // Throws InternalError if `expression` is not valid.
  explicit Pattern(const std::string& expression);
  ~Pattern();

  // The groups when all of `text` matches.
  std::optional<Groups> match(const std::string& text) const;
  // The groups of each match within `text`, from the first to the last.
  std::vector<Groups> find_all(const std::string& text) const;
  // `text` with each match replaced; $1 in `replacement` is the first group.
  std::string replace_all(const std::string& text, const std::string& replacement) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace fettle
