// Defines Pattern, for the regular expressions in Fettle's own code, in PCRE2's syntax. Texts may have any length.
// Expressions that come from users go through tokenizer/text/regex.h instead, which limits the matching time.
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

  // Returns the groups if the pattern matches the whole of `text`; otherwise nullopt.
  std::optional<Groups> match(const std::string& text) const;
  // Returns the groups of each match within `text`, from the first match to the last.
  std::vector<Groups> find_all(const std::string& text) const;
  // Returns `text` with each match replaced. In `replacement`, $1 stands for the first group.
  std::string replace_all(const std::string& text, const std::string& replacement) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

// Returns PCRE2's text for one of its error numbers.
std::string pcre2_message(int error);

}  // namespace fettle
