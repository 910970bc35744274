// Defines tokenize, which splits the text of a Jinja template into tokens. Like Transformers, it uses trim_blocks and
// lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle::jinja {

enum class TokenKind {
  kText,
  kOutputBegin,
  kOutputEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;  // strings with their escapes resolved, numbers without underscores
  int line;          // line number, from 1
};

// Returns the tokens of `source`. Throws UserError "name:line: reason" for text that is not a valid template.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace fettle::jinja
