// Defines with_fixed_eos_token.
#pragma once

#include <string>

namespace fettle {

// Returns the Jinja text of a template that renders as `source` does with this eos_token, whatever the tokenizer's
// eos_token is. Returns `source` itself if it does not have the word eos_token.
std::string with_fixed_eos_token(const std::string& source, const std::string& eos_token);

}  // namespace fettle
