#include "base/pattern.h"

#include <regex>

namespace fettle {
namespace {

Pattern::Groups groups_of(const std::smatch& match) {
  return {match.begin(), match.end()};
}

}  // namespace

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& expression) : compiled_(new Compiled{std::regex(expression)}) {}
Pattern::~Pattern() = default;

std::optional<Pattern::Groups> Pattern::match(const std::string& text) const {
  std::smatch match;
  if (!std::regex_match(text, match, compiled_->regex)) return std::nullopt;
  return groups_of(match);
}

std::vector<Pattern::Groups> Pattern::find_all(const std::string& text) const {
  std::vector<Groups> found;
  for (std::sregex_iterator match(text.begin(), text.end(), compiled_->regex); match != std::sregex_iterator(); ++match)
    found.push_back(groups_of(*match));
  return found;
}

std::string Pattern::replace_all(const std::string& text, const std::string& replacement) const {
  return std::regex_replace(text, compiled_->regex, replacement);
}

}  // namespace fettle
